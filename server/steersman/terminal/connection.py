"""A blocking connection to the server of a state directory, for one command in one thread."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from steersman import __version__
from steersman.json_values import is_list, is_object
from steersman.serving.joining import Joined, JoiningError, Wait, join
from steersman.serving.starting import starter
from steersman.serving.state_files import StateFiles
from steersman.serving.wire import READ_BYTES, control_line, read_control
from steersman.settings import CommandError, Source

T = TypeVar("T")


class NoServerError(CommandError):
    """No server can be joined, or the one that was is gone."""


class RefusedError(CommandError):
    """The server refused; the text says why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.exit_code = 2 if code == "INVALID_PARAMS" else 1


class Connection:
    """One conversation with the server."""

    def __init__(self, joined: Joined) -> None:
        self.pid = joined.pid
        self._socket = joined.connection
        self._socket.setblocking(True)
        self._lines = joined.lines
        self._arrived = deque(joined.arrived)
        self._count = 0
        self._waiting: list[Mapping[str, Any]] = []
        self._end_reason = ""

    def fileno(self) -> int:
        """The descriptor that becomes readable when the server says something."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def request(self, method: str, **params: Any) -> Mapping[str, Any]:
        """Have the server do something, and wait for the result.

        Raises:
            RefusedError: it refused.
            NoServerError: it is gone.
        """
        self._count += 1
        with suppress(OSError):  # what it still said comes first
            self._socket.sendall(control_line({"id": self._count, "method": method, "params": params}))
        while True:
            message = self._next()
            if message.get("id") != self._count:
                self._note(message)
                continue
            error, result = message.get("error"), message.get("result")
            if is_object(error):
                raise RefusedError(str(error.get("code")), str(error.get("message")))
            return result if is_object(result) else {}

    def attend(self) -> None:
        """Be the human's presence: questions can be put before them here. Raises as `request`."""
        self.request("attend")

    @property
    def waiting(self) -> list[Mapping[str, Any]]:
        """The cards that wait, oldest first, as far as the server has said."""
        return self._waiting

    def listen(self) -> None:
        """Wait until the server says something, and take it in. Raises `NoServerError`."""
        self._note(self._next())
        while self._arrived or select.select([self], [], [], 0)[0]:
            self._note(self._next())

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the server is gone. Returns whether it is."""
        deadline = time.monotonic() + seconds
        try:
            while select.select([self], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self._note(self._next())
        except NoServerError:
            return True
        return False

    def _note(self, message: Mapping[str, object]) -> None:
        data, end = message.get("data"), message.get("end")
        if isinstance(end, str):
            self._end_reason = end
        if message.get("event") == "waiting" and is_object(data) and is_list(cards := data.get("waiting")):
            self._waiting = [card for card in cards if is_object(card)]

    def _next(self) -> Mapping[str, object]:
        while not self._arrived:
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                raise NoServerError("The server is gone. " + (self._end_reason or "It ended without a word."))
            self._arrived.extend(self._lines.feed(data))
        return read_control(self._arrived.popleft()) or {}


def connect(source: Source, *, start: bool) -> Connection:
    """Join the server of the state directory.

    Args:
        source: what the command and its environment say.
        start: start one in the background if none runs.

    Raises:
        NoServerError: there is none, or it cannot be started.
        SettingsError: for the first option of a wrong form.
    """
    files = StateFiles(source.state_dir())
    hello = {"role": "control", "version": __version__}
    start_one = starter(files, source) if start else None
    try:
        joined = _drive(join(files, hello, start=start_one, version=__version__, may_ask=False))
    except JoiningError as error:
        raise NoServerError(str(error)) from None
    return Connection(joined)


def _drive(steps: Generator[Wait, None, T]) -> T:
    try:
        while True:
            descriptor, moment = next(steps)
            select.select([descriptor], [], [], max(0.0, moment - time.monotonic()))
    except StopIteration as done:
        return done.value
