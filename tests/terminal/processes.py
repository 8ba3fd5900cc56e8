"""Commands of ours as their user runs them: in a terminal of their own, or with pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

SECONDS: Final = 20
"""A process takes a while to start on a busy machine."""
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def run(state: Path, *arguments: str, stdin: str = "") -> Done:
    """Run a command on the server of a state directory, without a terminal."""

    def call() -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "steersman", *arguments, "--state-dir", str(state)],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return await anyio.to_thread.run_sync(call)


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self._raw = b""
        self._seen = 0

    @property
    def shown(self) -> str:
        """Everything that was shown so far, without styles."""
        return _STYLE.sub("", self.raw)

    @property
    def raw(self) -> str:
        return self._raw.decode("utf-8", "replace").replace("\r\n", "\n")

    async def until(self, text: str) -> str:
        """Wait until `text` is shown behind what was waited for before, and return what came up to it."""
        with anyio.fail_after(SECONDS):
            while (found := self.shown.find(text, self._seen)) < 0:
                await self._read()
        start, self._seen = self._seen, found + len(text)
        return self.shown[start : self._seen]

    async def _read(self) -> None:
        await anyio.wait_readable(self._descriptor)
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError:
            data = b""
        assert data, f"it ended with {self._process.poll()}:\n{self.shown}"
        self._raw += data

    def type(self, text: str, *, enter: bool = True) -> None:
        os.write(self._descriptor, text.encode() + (b"\n" if enter else b""))

    def press_ctrl_d(self) -> None:
        os.write(self._descriptor, b"\x04")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    async def exit_code(self) -> int:
        with anyio.fail_after(SECONDS), suppress(AssertionError):
            while True:
                await self._read()
        with anyio.fail_after(SECONDS):
            return await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)


@asynccontextmanager
async def terminal(state: Path, *arguments: str) -> AsyncGenerator[Terminal]:
    ours, theirs = pty.openpty()
    # What is typed is not shown again: a test reads what the command writes.
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [sys.executable, "-m", "steersman", *arguments, "--state-dir", str(state)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
