"""The journal's file: whose it is, what is done with one that cannot be used, and which schema it has."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import steersman.storage
from steersman import steering
from steersman.questions import cards
from steersman.storage import opening, reading, tables
from steersman.storage.failures import StorageError
from steersman.storage.journal import load_journal, open_journal
from tests.clock import ManualClock
from tests.requirements import requirement
from tests.storage.test_commits import fact

pytestmark = pytest.mark.anyio


async def make(state_dir: Path, *, facts: int = 1) -> Path:
    async with open_journal(state_dir, clock=ManualClock()) as journal:
        await journal.append(*(fact(number, size=100) for number in range(facts)))
    return state_dir / "journal.sqlite3"


def refusal(state_dir: Path) -> str:
    """Why the journal cannot be opened; what lies there is as it was."""
    before = {path: path.read_bytes() for path in state_dir.glob("*") if path.is_file()}
    with pytest.raises(StorageError) as found:
        load_journal(state_dir, ManualClock())
    assert {path: path.read_bytes() for path in state_dir.glob("*") if path.is_file()} == before
    return str(found.value)


@requirement("journal:file")
async def test_directory_and_files_are_their_users_alone(tmp_path: Path) -> None:
    state_dir = tmp_path / "deep" / "state"
    old = os.umask(0)
    try:
        async with open_journal(state_dir, clock=ManualClock()) as journal:
            await journal.append(fact(0))
            found = {path.name: path.stat().st_mode & 0o777 for path in (state_dir, *state_dir.iterdir())}
    finally:
        os.umask(old)
    assert found == {"state": 0o700, "journal.sqlite3": 0o600, "journal.sqlite3-wal": 0o600}


@requirement("journal:file")
async def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = await make(tmp_path)
    path.chmod(0o644)
    await make(tmp_path, facts=0)
    assert path.stat().st_mode & 0o777 == 0o600


@requirement("journal:file")
@pytest.mark.parametrize("what", ["torn", "text", "directory", "foreign", "unnamed", "newer"])
async def test_a_file_that_cannot_be_used_is_named_with_the_remedy_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal.sqlite3"
    match what:
        case "torn":
            await make(tmp_path, facts=2000)
            whole = path.read_bytes()
            path.write_bytes(whole[:8192] + b"\xff" * 8192 + whole[16384:])
            expected = ("is damaged", "Restore it from a backup, or move it")
        case "text":
            path.write_text("no database " * 1000)
            expected = ("is damaged, or is no journal of Steersman", "move it")
        case "directory":
            path.mkdir()
            expected = ("it is no file", "choose another directory by --state-dir")
        case "foreign":
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE notes (words TEXT)")
            connection.close()
            expected = ("the database of another program", "Move it away, or choose another directory by --state-dir")
        case "unnamed":
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
            connection.close()
            expected = ("the database of another program", "Move it away")
        case _:
            await make(tmp_path)
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE alembic_version SET version_num = '0999'")
            connection.close()
            expected = ("was written by a newer Steersman", "Install the newer one again")
    found = refusal(tmp_path)
    assert str(path) in found
    for words in expected:
        assert words in found


@requirement("journal:file")
async def test_a_file_that_another_process_holds_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "LOCK_SECONDS", 0.01)
    async with open_journal(tmp_path, clock=ManualClock()) as journal:
        await journal.append(fact(0))
        with pytest.raises(StorageError, match="is held by another process") as found:
            load_journal(tmp_path, ManualClock())
        assert "End that process, or choose another directory by --state-dir." in str(found.value)
        # The one that holds it goes on.
        await journal.append(fact(1))


LOAD_AS_A_USER_WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from steersman.clock import SystemClock
from steersman.storage.failures import StorageError
from steersman.storage.journal import load_journal
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    load_journal(Path(sys.argv[1]), SystemClock())
except StorageError as error:
    print(error)
"""


@requirement("journal:file")
@pytest.mark.parametrize("what", ["directory", "file", "no directory"])
async def test_what_may_not_be_written_is_named_with_the_remedy(what: str) -> None:
    with TemporaryDirectory() as name:
        outer = Path(name)
        path = await make(outer / "state")
        whole = path.read_bytes()
        if os.geteuid() == 0:
            os.chown(path.parent, 65534, 65534)
            os.chown(path, 65534, 65534)
        path.chmod(0o400 if what == "file" else 0o600)
        path.parent.chmod(0o500 if what == "directory" else 0o700)
        outer.chmod(0o555)
        state_dir = outer / "other" if what == "no directory" else path.parent
        command = [sys.executable, "-c", LOAD_AS_A_USER_WITHOUT_RIGHTS, str(state_dir)]
        said = (await anyio.run_process(command)).stdout.decode()
        outer.chmod(0o700)
        path.parent.chmod(0o700)
        assert path.read_bytes() == whole
        assert sorted(outer.rglob("*")) == [path.parent, path]
        assert str(path if what == "file" else state_dir) in said
        assert "cannot be written" in said
        assert "choose another directory by --state-dir" in said


@requirement("journal:file")
async def test_one_that_was_not_closed_is_looked_through_however_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await make(tmp_path, facts=2000)
    whole = path.read_bytes()
    # A page of the past, where opening alone does not look.
    torn = max(range(0, len(whole), 4096), key=lambda start: whole[start : start + 4096].count(b"TokenMade"))
    path.write_bytes(whole[:torn] + b"\xff" * 4096 + whole[torn + 4096 :])
    monkeypatch.setattr(opening, "CHECKED_BYTES", 0)
    async with open_journal(tmp_path, clock=ManualClock()):
        pass
    path.with_name("journal.sqlite3-wal").write_bytes(b"\0" * 100)
    with pytest.raises(StorageError, match="is damaged"):
        load_journal(tmp_path, ManualClock())


@requirement("journal:file")
def test_the_migrations_make_the_tables_that_the_code_reads_and_writes(tmp_path: Path) -> None:
    journal = load_journal(tmp_path, ManualClock())
    anyio.run(journal.aclose)
    engine = create_engine(f"sqlite:///{tmp_path / 'journal.sqlite3'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables.METADATA) == []
        # Which the comparison leaves out.
        conditions = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE sql LIKE '%INDEX%WHERE%'")
        partial = [index for table in tables.METADATA.tables.values() for index in table.indexes]
        assert conditions.scalar() == sum(
            bool(index.dialect_options["sqlite"]["where"] is not None) for index in partial
        )
        sequence = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'events'").scalar()
        assert sequence is not None
        assert "AUTOINCREMENT" in sequence
    engine.dispose()
    scripts = ScriptDirectory(str(Path(steersman.storage.__file__).parent / "migrations"))
    assert scripts.get_heads() == [tables.HEAD]


@requirement("journal:file")
def test_a_rebuilt_fold_remembers_as_much_as_a_live_one() -> None:
    assert reading.KEPT_RECEIPTS == steering.KEPT_RECEIPTS
    assert (reading.KEPT_CARDS, reading.KEPT_HANDLES) == (cards.KEPT_CARDS, cards.KEPT_HANDLES)
