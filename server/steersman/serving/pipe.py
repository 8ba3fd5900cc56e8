"""`steersman` on stdio: a pipe between a host and the one server of the state directory.

One thread, no heavy import: a host sees our tools as soon as the server has them. Lines pass as they are; what is
looked at is who waits for what, so that nobody waits for a server that is gone.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from steersman import __version__
from steersman.serving.joining import Joined, JoiningError, Wait, join
from steersman.serving.open_calls import HostLine, OpenCalls, ServerRequests, failed, read_host_line
from steersman.serving.starting import Start, starter
from steersman.serving.state_files import StateFiles
from steersman.serving.wire import (
    READ_BYTES,
    Lines,
    control_line,
    host_as_json,
    host_line,
    read_control,
    read_object,
)
from steersman.settings import HostSettings, Source

WAITING_BYTES: Final = 4 * 1024 * 1024
"""How much may wait for one side until the other is not read any more."""
HOST_WRITE_BYTES: Final = 4096
"""What a pipe that is ready to be written to takes without blocking (POSIX: PIPE_BUF)."""
GOODBYE_SECONDS: Final = 0.5
"""How long the server is given for its last answers once the host has closed its end."""
REJOIN_SECONDS: Final = 30.0
REJOIN_EVERY: Final = 0.5
"""After a server that ended for a reason, how long and how often the pipe looks whether there is another one."""
HEALTHY_SECONDS: Final = 2.0
"""A server that lived so long, or answered, and is gone without a word, is replaced at once."""

_INTERNAL: Final = "steersman-handshake"
_ENDED: Final = "This pipe was ended by a signal."


class Pipe:
    """Passes lines between one host and whichever server there is.

    Args:
        host_in: the descriptor that the host writes to.
        host_out: the descriptor that the host reads from.
        files: of the state directory.
        host: what holds for the host.
        start: starts a server if none listens; None only joins.
        version: of this pipe.
        say: is given what the user of the host should read in its log.
        wakeup: a descriptor that becomes readable when the pipe is to end.
    """

    def __init__(
        self,
        host_in: int,
        host_out: int,
        files: StateFiles,
        host: HostSettings,
        *,
        start: Start | None,
        version: str = __version__,
        say: Callable[[str], None] = lambda text: None,
        wakeup: int | None = None,
    ) -> None:
        self._host_in = host_in
        self._host_out = host_out
        self._files = files
        key = os.urandom(32).hex()
        self._hello = {"role": "pipe", "version": version, "key": key, "host": host_as_json(host)}
        self._start = start
        self._version = version
        self._say = say
        self._wakeup = wakeup

        self._from_host = Lines()
        self._host_open = True
        self._host_gone = False
        self._to_host: deque[bytes] = deque()
        self._to_host_bytes = 0

        self._pending: deque[HostLine] = deque()
        """What waits for a server."""
        self._handshake: list[HostLine] = []
        """The host's own `initialize` and `notifications/initialized`, which each server gets."""
        self._calls = OpenCalls()
        self._requests = ServerRequests(f"steersman-{os.urandom(6).hex()}")

        self._joining: Generator[Wait, None, Joined] | None = None
        self._wait: Wait = (-1, 0.0)
        self._server: socket.socket | None = None
        self._joined_at = 0.0
        self._answers = 0
        self._from_server = Lines()
        self._to_server: deque[tuple[memoryview, HostLine | None]] = deque()
        self._to_server_bytes = 0
        self._end_reason = ""
        self._asked = False
        self._look_until = 0.0
        self._look_at = 0.0
        self._leave_at = float("inf")
        self._last_said = ""
        self._deaf = False
        """Whether the host has been told how its calls ended, so that nothing of the server counts any more."""

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the host closes its end, or is gone, or the wakeup comes."""
        try:
            # The host is about to speak, and the server takes a moment.
            self._join()
            while not self._is_over():
                self._turn()
        finally:
            if self._joining is not None:
                self._joining.close()
            if self._server is not None:
                self._server.close()

    def _is_over(self) -> bool:
        if self._host_gone or time.monotonic() >= self._leave_at:
            return True
        if self._host_open:
            return False
        return self._server is None and (self._joining is None or not self._pending) and not self._to_host

    def _turn(self) -> None:
        """Wait until something can be done, and do it."""
        with _selector() as selector:
            now = time.monotonic()
            until = self._leave_at
            if self._wakeup is not None:
                selector.register(self._wakeup, selectors.EVENT_READ, self._be_woken)
            if self._host_open and self._to_server_bytes + self._pending_bytes() < WAITING_BYTES:
                selector.register(self._host_in, selectors.EVENT_READ, self._read_host)
            if self._to_host:
                selector.register(self._host_out, selectors.EVENT_WRITE, self._write_host)
            if self._server is not None:
                events = selectors.EVENT_READ if self._to_host_bytes < WAITING_BYTES else 0
                events |= selectors.EVENT_WRITE if self._to_server else 0
                if events:
                    selector.register(self._server, events, self._serve_server)
            if self._joining is not None:
                descriptor, moment = self._wait
                selector.register(descriptor, selectors.EVENT_READ, self._step)
                until = min(until, moment)
            elif self._server is None and now < self._look_until:
                until = min(until, self._look_at)
            timeout = None if until == float("inf") else max(0.0, until - now)
            ready = selector.select(timeout)
        for key, events in ready:
            key.data(events)
        self._be_on_time()

    def _be_on_time(self) -> None:
        now = time.monotonic()
        if self._joining is not None and now > self._wait[1]:
            self._step(0)
        if self._server is None and self._joining is None:
            if self._pending:
                self._join()
            elif self._look_at <= now < self._look_until and self._host_open:
                self._look_at = now + REJOIN_EVERY
                self._join(start=False)

    def _be_woken(self, events: int) -> None:
        assert self._wakeup is not None
        with suppress(BlockingIOError):
            os.read(self._wakeup, 512)
        self._fail_pending(_ENDED)
        self._withdraw_requests()
        self._fail_calls(_ENDED)
        self._deaf = True
        self._leave()

    # --- the host ----------------------------------------------------------------------------------------------------

    def _read_host(self, events: int) -> None:
        try:
            data = os.read(self._host_in, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._leave()
            return
        for line in self._from_host.feed(data):
            self._pass_to_server(read_host_line(line))

    def _leave(self) -> None:
        """The host closed its end: what it sent before is still sent, and what is answered at once still answered."""
        self._host_open = False
        if self._server is not None:
            self._goodbye()
        elif self._joining is None or not self._pending:
            self._leave_at = time.monotonic()

    def _goodbye(self) -> None:
        self._send_control({"bye": True})
        self._leave_at = time.monotonic() + GOODBYE_SECONDS

    def _pass_to_server(self, line: HostLine) -> None:
        if line.kind == "response":
            answer = self._requests.from_host(line)
            line = HostLine(answer or b"", "response")
            if answer is None:
                return
        elif line.kind == "other" and (answer := self._requests.unreadable(line.data)) is not None:
            if not answer:
                return
            line = HostLine(answer, "response")
        if self._server is None:
            if line.kind != "response":
                self._pending.append(line)
                if self._joining is None:
                    self._join()
            return
        self._send(line)

    def _pass_to_host(self, line: bytes) -> None:
        data = line + b"\n"
        self._to_host.append(data)
        self._to_host_bytes += len(data)

    def _write_host(self, events: int) -> None:
        data = self._to_host[0]
        try:
            written = os.write(self._host_out, data[:HOST_WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self._host_gone = True
            if self._server is not None:
                self._send_control({"bye": True})
                self._write_server()
            return
        self._to_host_bytes -= written
        if written == len(data):
            self._to_host.popleft()
        else:
            self._to_host[0] = data[written:]

    def _pending_bytes(self) -> int:
        return sum(len(line.data) for line in self._pending)

    # --- the server --------------------------------------------------------------------------------------------------

    def _join(self, *, start: bool = True) -> None:
        may_ask = not self._asked
        self._joining = join(
            self._files,
            self._hello,
            start=self._start if start else None,
            version=self._version,
            may_ask=may_ask,
        )
        self._step(0)

    def _step(self, events: int) -> None:
        assert self._joining is not None
        try:
            self._wait = next(self._joining)
        except StopIteration as done:
            self._joining = None
            self._be_joined(done.value)
        except JoiningError as error:
            self._joining = None
            self._fail_pending(str(error))

    def _be_joined(self, joined: Joined) -> None:
        self._server, self._from_server = joined.connection, joined.lines
        self._joined_at, self._answers, self._end_reason = time.monotonic(), 0, ""
        self._look_until = 0.0
        if joined.busy:
            self._asked = True
            self._tell(
                f"The server that runs is version {joined.version}, older than this one, {self._version}. It was asked "
                "to end once nothing is open; until then it serves on. `steersman stop` ends it at once."
            )
        for line in self._handshake:
            repeated = line.data
            if line.kind == "request":
                message = read_object(line.data)
                assert message is not None
                repeated = control_free({**message, "id": _INTERNAL})
            self._queue(host_line(repeated), None)
        while self._pending:
            self._send(self._pending.popleft())
        for line in joined.arrived:
            self._take(line)
        if not self._host_open:
            self._goodbye()

    def _send(self, line: HostLine) -> None:
        self._queue(host_line(line.data), line)

    def _send_control(self, message: Mapping[str, object]) -> None:
        self._queue(control_line(message), None)

    def _queue(self, data: bytes, line: HostLine | None) -> None:
        self._to_server.append((memoryview(data), line))
        self._to_server_bytes += len(data)

    def _serve_server(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write_server()
        if events & selectors.EVENT_READ:
            self._read_server()

    def _write_server(self) -> None:
        assert self._server is not None
        try:
            while self._to_server:
                data, line = self._to_server[0]
                sent = self._server.send(data)
                self._to_server_bytes -= sent
                if sent < len(data):
                    self._to_server[0] = (data[sent:], line)
                    continue
                self._to_server.popleft()
                if line is not None:
                    self._be_sent(line)
        except BlockingIOError:
            return
        except OSError:
            # What it still said is read first; the end of it follows.
            self._to_server_bytes = 0
            self._pending.extendleft(self._unsent())

    def _be_sent(self, line: HostLine) -> None:
        self._calls.sent(line)
        if line.kind == "initialized" and self._handshake:
            self._handshake = [self._handshake[0], line]

    def _unsent(self) -> list[HostLine]:
        """What the server at hand did not get whole, newest first; the queue is empty then."""
        lines = [line for _, line in self._to_server if line is not None and line.kind != "response"]
        self._to_server.clear()
        self._to_server_bytes = 0
        return lines[::-1]

    def _read_server(self) -> None:
        if self._server is None:
            return
        try:
            data = self._server.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_server()
            return
        for line in self._from_server.feed(data):
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self._deaf:
            return
        control = read_control(line)
        if control is not None:
            reason = control.get("end")
            if isinstance(reason, str):
                self._end_reason = reason
            return
        message = read_object(line)
        if message is None:
            self._pass_to_host(line)
        elif "method" not in message:
            if message.get("id") == _INTERNAL:
                return
            self._answers += 1
            call = self._calls.answered(message.get("id"))
            if call is not None and call.method == "initialize" and "result" in message:
                self._handshake = [call]
            self._pass_to_host(line)
        elif "id" in message:
            self._pass_to_host(self._requests.to_host(message))
        elif message["method"] == "notifications/cancelled":
            cancelled = self._requests.cancelled(message)
            if cancelled is not None:
                self._pass_to_host(cancelled)
        else:
            self._pass_to_host(line)

    def _lose_server(self) -> None:
        """The server is gone: nobody waits for it, and what it never had goes to the next one."""
        assert self._server is not None
        self._server.close()
        self._server = None
        if not self._host_open:
            self._leave_at = time.monotonic() + (GOODBYE_SECONDS if self._to_host else 0)
            return
        said = self._end_reason
        reason = said or "it ended without a word; its log in the state directory may say why."
        self._withdraw_requests()
        again = self._fail_calls(reason)
        self._pending.extendleft(self._unsent())
        self._pending.extendleft(reversed(again))
        now = time.monotonic()
        crashed = not said and (self._answers > 0 or now - self._joined_at >= HEALTHY_SECONDS)
        if self._pending or crashed:
            self._join()
        else:
            self._look_at, self._look_until = now + REJOIN_EVERY, now + REJOIN_SECONDS

    def _withdraw_requests(self) -> None:
        for cancelled in self._requests.withdraw_all("The server that asked is gone."):
            self._pass_to_host(cancelled)

    def _fail_calls(self, reason: str) -> list[HostLine]:
        """Answer what the server has not answered, but for what may be sent again, which is returned."""
        again: list[HostLine] = []
        for call in self._calls.take_all():
            if call.may_be_repeated:
                again.append(replace(call, repeated=True))
            else:
                self._pass_to_host(failed(call, reason, maybe_done=True))
        return again

    def _fail_pending(self, reason: str) -> None:
        if self._pending:
            self._tell(reason)
        while self._pending:
            line = self._pending.popleft()
            if line.kind == "request":
                self._pass_to_host(failed(line, reason, maybe_done=False))
            elif line.kind == "initialized" and self._handshake:
                self._handshake = [self._handshake[0], line]

    def _tell(self, text: str) -> None:
        if text != self._last_said:
            self._last_said = text
            self._say(text)


def control_free(message: Mapping[str, object]) -> bytes:
    import json

    return json.dumps(message).encode()


def _selector() -> selectors.BaseSelector:
    # Regular files, which epoll does not take, are always ready.
    return selectors.PollSelector() if sys.platform == "linux" else selectors.SelectSelector()


def run_pipe(options: Mapping[str, str | None], environ: Mapping[str, str], *, version: str = __version__) -> int:
    """Be the pipe of the host behind stdin and stdout, until it closes stdin or a signal comes.

    Raises:
        SettingsError: for the first option of a wrong form.
    """
    source = Source(options, environ)
    settings = source.settings()
    files = StateFiles(settings.state_dir)
    start = starter(files, source)
    if sys.stdin.isatty():
        _say("Steersman speaks MCP on stdin and stdout, for a host to start. See `steersman --help`.")
    awake, waker = socket.socketpair()
    awake.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _note)
    pipe = Pipe(
        0,
        1,
        files,
        settings.host,
        start=start,
        version=version,
        say=_say,
        wakeup=awake.fileno(),
    )
    pipe.run()
    return 0


def _note(number: int, frame: object) -> None:
    """The wakeup tells of the signal; without a handler of ours it would end the process."""


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"steersman: {text}\n")
        sys.stderr.flush()
