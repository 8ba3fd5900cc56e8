"""Opening the journal's file: its rights, its lock, its soundness and its schema."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from steersman.storage.failures import damaged, foreign, newer, unusable
from steersman.storage.tables import HEAD

FILE_NAME: Final = "journal.sqlite3"
LOCK_SECONDS: Final = 2.0
"""How long the process before is waited for, which may be going right now."""
CHECKED_BYTES: Final = 32 * 1024 * 1024
"""A file up to this size is checked at every start, in some 0.1 s; a larger one after an unclean end only."""

_PRAGMAS: Final = (
    # One writer: nobody else can open the file while it is held, and no shared memory is needed.
    "locking_mode = EXCLUSIVE",
    "synchronous = FULL",
    "foreign_keys = OFF",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "journal_size_limit = 16777216",
)


def prepare_file(state_dir: Path) -> Path:
    """Make the directory (0700) and the file (0600), if they are not there, and return the file.

    Raises:
        StorageError: they cannot be made or written.
    """
    path = state_dir / FILE_NAME
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        if not path.is_file():
            raise OSError(0, "it is no file")
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise unusable(path, error) from None
    # Never opened here besides: closing it would take the lock off that SQLite holds in this process.
    for each in (path, state_dir):
        if not os.access(each, os.R_OK | os.W_OK):
            raise unusable(each, PermissionError(0, "it is read-only for this user"))
    return path


def make_engine(path: Path) -> Engine:
    """An engine with one connection, which any one thread at a time may use. It changes no file that is there."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if not path.stat().st_size:
                # What is forgotten is given back to the disk.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool)

    # The driver is kept from opening transactions by itself: it does not do so for every statement.
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "begin", begin)
    return engine


def check(connection: Connection, path: Path, *, ended_cleanly: bool) -> None:
    """Look whether the file is sound, if that is due.

    Raises:
        StorageError: it is not.
    """
    if ended_cleanly and path.stat().st_size > CHECKED_BYTES:
        return
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise damaged(path, str(found))


def migrate(connection: Connection, path: Path) -> None:
    """Bring the schema up to the newest, within the transaction that is open.

    Raises:
        StorageError: another program or a newer Steersman wrote the file.
    """
    revision = _revision(connection, path)
    if revision == HEAD:
        return
    # Only now: it takes a quarter of a second.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    if revision is not None:
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError:
            raise newer(path, revision) from None
    command.upgrade(config, HEAD)


def write_ahead(connection: Connection) -> None:
    """Have a transaction cost one write to the disk. Outside of any, and only in a file that is known to be ours."""
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute("PRAGMA journal_mode = WAL").fetchall()


def _revision(connection: Connection, path: Path) -> str | None:
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    if not tables:
        return None
    if "alembic_version" in tables:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if revision:
            return str(revision)
    raise foreign(path)
