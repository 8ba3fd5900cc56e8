"""The files by which the server of a state directory is found: its lock, its socket, its log, and `server.json`.

The pipe imports this, so nothing heavy is imported here.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from steersman.settings import CommandError

SOCKET_PATH_BYTES: Final = 107 if sys.platform == "linux" else 103
"""How long the path of a Unix socket may be."""
BACKLOG: Final = 1024


class StateDirError(CommandError):
    """The state directory cannot be used as asked. The message names the path and what to do about it."""


class StateFiles:
    """Where things lie in one state directory.

    Args:
        directory: an absolute path.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "server.sock"
        self.lock = directory / "server.lock"
        self.log = directory / "server.log"
        self.description = directory / "server.json"

    def make(self) -> None:
        """Make the directory, mode 0700, if it does not exist, and see that only its user can write it.

        Raises:
            StateDirError: it cannot be made, is another user's, or others can write it.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            stat = self.directory.stat()
        except OSError as error:
            raise unusable(self.directory, "made", error) from None
        if stat.st_uid != os.geteuid():
            raise StateDirError(
                f"{self.directory} belongs to another user (id {stat.st_uid}). Choose a directory of your own by "
                "--state-dir or STEERSMAN_STATE_DIR."
            )
        if stat.st_mode & 0o022:
            raise StateDirError(
                f"{self.directory} can be written by other users, who could put a server of their own into it. "
                f"Run `chmod go-w {self.directory}`, or choose another directory by --state-dir."
            )

    # --- the socket --------------------------------------------------------------------------------------------------

    def connect(self) -> socket.socket | None:
        """A connection to the server, non-blocking; none if none listens.

        Raises:
            StateDirError: the socket cannot be reached, or the server behind it is another user's.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._address() as address:
                connection.connect(address)
            check_peer(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            if error.errno in (errno.ENOTSOCK, errno.EPROTOTYPE):
                raise self._no_socket() from None
            raise unusable(self.socket, "reached", error) from None
        except StateDirError:
            connection.close()
            raise
        connection.setblocking(False)
        return connection

    def listen(self) -> socket.socket:
        """A listening socket, mode 0600, in the place of one that a dead server left. For who holds the lock.

        Raises:
            StateDirError: the directory cannot be written, or something else lies there.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with suppress(FileNotFoundError):
                if not self.socket.is_socket() and os.path.lexists(self.socket):
                    raise self._no_socket()
                self.socket.unlink()
            with self._address() as address:
                listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise unusable(self.socket, "made", error) from None
        except StateDirError:
            listener.close()
            raise
        finally:
            os.umask(before)
        listener.setblocking(False)
        return listener

    @contextmanager
    def _address(self) -> Generator[str]:
        """The socket's path, or a short one that leads to it."""
        if len(os.fsencode(self.socket)) <= SOCKET_PATH_BYTES:
            yield str(self.socket)
            return
        if sys.platform != "linux" or not os.path.isdir("/proc/self/fd"):
            raise StateDirError(
                f"{self.socket} is too long for a socket: {len(os.fsencode(self.socket))} bytes, allowed are "
                f"{SOCKET_PATH_BYTES}. Choose a shorter directory by --state-dir or STEERSMAN_STATE_DIR."
            )
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{self.socket.name}"
        finally:
            os.close(directory)

    def _no_socket(self) -> StateDirError:
        return StateDirError(
            f"{self.socket} is no socket. Move it away, or choose another directory by --state-dir or "
            "STEERSMAN_STATE_DIR."
        )

    # --- what the server says of itself ------------------------------------------------------------------------------

    def describe(self, description: Mapping[str, object]) -> None:
        """Write `server.json`, mode 0600, whole at any moment.

        Raises:
            StateDirError: the directory cannot be written.
        """
        temporary = self.directory / f".server.json-{os.getpid()}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(json.dumps(description, indent=1) + "\n")
            os.replace(temporary, self.description)
        except OSError as error:
            raise unusable(self.description, "written", error) from None

    def clear(self) -> None:
        """Take socket and `server.json` away. For who holds the lock."""
        for path in (self.socket, self.description):
            with suppress(OSError):
                path.unlink()


class Lock:
    """Held by the one server of a state directory, as long as it lives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, files: StateFiles) -> Lock | None:
        """Take the lock; none if somebody holds it.

        Raises:
            StateDirError: the directory cannot be used.
        """
        import fcntl

        files.make()
        try:
            descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(files.lock, "written", error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise unusable(files.lock, "locked", error) from None
        return cls(descriptor)

    @staticmethod
    def is_held(files: StateFiles) -> bool:
        """Whether a server lives. It is asked for a moment, which a server that starts waits out."""
        import fcntl

        try:
            descriptor = os.open(files.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        os.close(self._descriptor)


def holder(files: StateFiles) -> str:
    """Who holds the lock, for an error."""
    with suppress(OSError):
        pid = files.lock.read_text(encoding="ascii", errors="replace").strip()
        if pid.isdigit():
            return f"process {pid}"
    return "a process"


def check_peer(connection: socket.socket) -> None:
    """See that the other end of a Unix socket is a process of the same user.

    Raises:
        StateDirError: it is not, or nobody can tell.
    """
    found = peer_user(connection)
    if found != os.geteuid():
        who = "cannot be told" if found is None else f"is the user of id {found}"
        raise StateDirError(f"The other end of the socket {who}; allowed is only the user of id {os.geteuid()}.")


def peer_user(connection: socket.socket) -> int | None:
    """The id of the user behind a Unix socket; none where the system does not tell."""
    if sys.platform == "linux":
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return user
    if sys.platform == "darwin":
        # struct xucred: version, user, then groups; LOCAL_PEERCRED of SOL_LOCAL.
        _, user = struct.unpack_from("2I", connection.getsockopt(0, 1, 76))
        return user
    return None


def unusable(path: Path, what: str, error: OSError) -> StateDirError:
    why = error.strerror or type(error).__name__
    return StateDirError(
        f"{path} cannot be {what}: {why}. Give the user who runs Steersman that right, or choose another directory "
        "by --state-dir or STEERSMAN_STATE_DIR."
    )
