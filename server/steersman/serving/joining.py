"""How a pipe comes to a server: it joins the one that listens, or starts one and waits for it.

Written as a generator, because the pipe goes on serving its host meanwhile: it yields what it waits for.
The pipe imports this, so nothing heavy is imported here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from steersman.serving.starting import START_SECONDS, Start
from steersman.serving.state_files import StateDirError, StateFiles, holder
from steersman.serving.wire import READ_BYTES, Lines, control_line, is_newer, read_control, read_object

Wait = tuple[int, float]
"""A descriptor that is to become readable, and the moment at which the wait is over all the same."""

HELLO_BYTES: Final = 64 * 1024


class JoiningError(Exception):
    """No server can be joined. The text says why, and what to do about it."""


@dataclass(frozen=True)
class Joined:
    """A server that has said hello."""

    connection: socket.socket
    pid: int
    version: str
    lines: Lines
    """What came behind its hello, as far as it is no whole line."""
    arrived: list[bytes]
    busy: bool = False
    """Whether it is older than the pipe, was asked to end, and goes on because something is open."""


def join(
    files: StateFiles,
    hello: Mapping[str, object],
    *,
    start: Start | None,
    version: str,
    may_ask: bool,
) -> Generator[Wait, None, Joined]:
    """Join a server.

    Args:
        files: of the state directory.
        hello: what the pipe says of itself.
        start: starts a server if none listens; None only joins.
        version: of the pipe.
        may_ask: whether an older server is asked to end.

    Raises:
        JoiningError: there is none, and none can be started.
    """
    deadline = time.monotonic() + START_SECONDS
    try:
        while True:
            connection = files.connect()
            if connection is None:
                if start is None:
                    raise JoiningError(f"No server runs for {files.directory}.")
                yield from _start(start, deadline)
                connection = files.connect()
            if connection is not None:
                try:
                    joined = yield from _greet(connection, hello, files, deadline)
                    if joined is not None and may_ask and is_newer(version, joined.version):
                        joined = yield from _ask_to_end(joined, version, deadline)
                except BaseException:
                    connection.close()
                    raise
                if joined is not None:
                    return joined
                connection.close()
            if time.monotonic() > deadline:
                raise JoiningError(_silent(files))
    except StateDirError as error:
        raise JoiningError(str(error)) from None


def _start(start: Start, deadline: float) -> Generator[Wait, None, None]:
    said = start()
    text = b""
    try:
        while b"\n" not in text:
            yield said, deadline
            if time.monotonic() > deadline:
                raise JoiningError(f"The server did not start within {START_SECONDS:.0f} s. Its log says more.")
            data = os.read(said, HELLO_BYTES)
            if not data:
                raise JoiningError("The server ended before it listened. Its log says why.")
            text += data
    finally:
        os.close(said)
    message = read_object(text.partition(b"\n")[0])
    if message is not None and "error" in message:
        raise JoiningError(str(message["error"]))


def _greet(
    connection: socket.socket, hello: Mapping[str, object], files: StateFiles, deadline: float
) -> Generator[Wait, None, Joined | None]:
    """Exchange hellos; none if the server went away meanwhile."""
    try:
        connection.send(control_line(hello))
    except OSError:
        return None
    lines, arrived = Lines(), list[bytes]()
    while not arrived:
        data = yield from _read(connection, files, deadline)
        if not data:
            return None
        arrived = lines.feed(data)
    message = read_control(arrived.pop(0))
    if message is None or "error" in message:
        raise JoiningError(str((message or {}).get("error", f"What listens on {files.socket} is no Steersman server.")))
    pid = message.get("pid")
    return Joined(connection, pid if isinstance(pid, int) else 0, str(message.get("version", "")), lines, arrived)


def _ask_to_end(joined: Joined, version: str, deadline: float) -> Generator[Wait, None, Joined | None]:
    """Ask an older server to make room; none if it does."""
    arrived = list(joined.arrived)
    try:
        joined.connection.send(control_line({"retire": version}))
        while True:
            for line in arrived:
                message = read_control(line)
                if message is not None and message.get("retire") == "busy":
                    return Joined(joined.connection, joined.pid, joined.version, joined.lines, [], busy=True)
            yield joined.connection.fileno(), deadline
            if time.monotonic() > deadline:
                return Joined(joined.connection, joined.pid, joined.version, joined.lines, [], busy=True)
            data = joined.connection.recv(READ_BYTES)
            if not data:
                return None
            arrived = joined.lines.feed(data)
    except BlockingIOError:
        return None
    except OSError:
        return None


def _read(connection: socket.socket, files: StateFiles, deadline: float) -> Generator[Wait, None, bytes]:
    while True:
        yield connection.fileno(), deadline
        if time.monotonic() > deadline:
            raise JoiningError(_silent(files))
        try:
            return connection.recv(READ_BYTES)
        except BlockingIOError:
            continue
        except OSError:
            return b""


def _silent(files: StateFiles) -> str:
    return (
        f"The server of {files.directory} does not answer: {holder(files)} holds {files.lock}. "
        "End it by `steersman stop`, or by a signal."
    )
