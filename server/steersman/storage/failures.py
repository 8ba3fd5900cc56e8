"""What can go wrong with the journal's file, in words for who runs the server."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from steersman.settings import CommandError

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REFUSED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class StorageError(CommandError):
    """The journal cannot be used. The message names the path and what to do about it."""


def unusable(path: Path, error: OSError) -> StorageError:
    """The file or its directory is not what it must be."""
    return _refused(path, error.strerror or type(error).__name__)


def damaged(path: Path, found: str) -> StorageError:
    return StorageError(
        f"{path} is damaged, or is no journal of Steersman: {found}. Restore it from a backup, or move it and the "
        "files beside it that begin with its name away, to begin with an empty one."
    )


def foreign(path: Path) -> StorageError:
    return StorageError(
        f"{path} is the database of another program: it has tables, and none of them says which version of Steersman "
        "wrote it. Move it away, or choose another directory by --state-dir."
    )


def newer(path: Path, revision: str) -> StorageError:
    return StorageError(
        f"{path} was written by a newer Steersman: its schema is {revision[:40]!a}, which this one does not know. "
        "Install the newer one again, or choose another directory by --state-dir."
    )


def explain(path: Path, fault: BaseException) -> StorageError:
    """Say what a fault of the database means. A fault of ours shows its kind and nothing of its text."""
    if isinstance(fault, StorageError):
        return fault
    if isinstance(fault, OSError):
        return unusable(path, fault)
    # SQLAlchemy keeps the driver's error, which alone knows the code.
    driver: object = getattr(fault, "orig", fault)
    if not isinstance(driver, sqlite3.Error):
        return StorageError(f"{path} is not written any more: a fault of ours, {type(fault).__name__}. Start anew.")
    # A driver that stops by itself gives no code.
    code: int = getattr(driver, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    primary = code & 0xFF
    if primary in _HELD:
        return StorageError(
            f"{path} is held by another process: a Steersman server that runs, or a tool that has it open. "
            "End that process, or choose another directory by --state-dir."
        )
    if primary in _DAMAGED:
        return damaged(path, str(driver))
    if primary in _REFUSED:
        return _refused(path, _why(path, driver))
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_TOOBIG):
        return StorageError(
            f"{path} cannot be written: {driver}. Make room on its disk, look whether the disk is sound and whether "
            "files may grow so large, and start the server anew."
        )
    return StorageError(f"{path} cannot be used: {driver}. Start the server anew.")


def _refused(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {why}. Give the user who runs Steersman that right, or choose another directory "
        "by --state-dir."
    )


def _why(path: Path, error: sqlite3.Error) -> str:
    for each in (path, path.parent):
        if each.exists() and not os.access(each, os.W_OK):
            return f"{each} is read-only for this user"
    return str(error)
