"""The demo as a process: with a script for the human, or with a terminal that a test types on."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

COMMAND = [sys.executable, "-m", "steersman", "demo"]
SERVER = Path(__file__).with_name("mutant_server.py")


def against(server: str, *, before: str = "", **options: bool) -> list[str]:
    """A command that runs the demo against `mutant_server.py`, after some code of the test's own."""
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    command = [sys.executable, str(SERVER), server]
    code = f"{before}\nraise SystemExit(run_demo(server_command={command!r}, {given}))"
    return [sys.executable, "-c", f"from steersman.demo import run_demo\n{code}"]


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    """Of standard output; nothing may have come on standard error."""


async def run(command: Sequence[str]) -> Ended:
    """Run a demo to its end, with no terminal."""
    with anyio.fail_after(20):
        done = await anyio.run_process(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.stderr.decode() == "", done.stderr.decode()
    return Ended(done.returncode, done.stdout.decode())


class Terminal:
    """A demo whose standard input is a terminal."""

    def __init__(self, process: Process, keyboard: int) -> None:
        assert process.stdout is not None
        self.process = process
        self._keyboard = keyboard
        self._screen = BufferedByteReceiveStream(process.stdout)
        self.output = ""

    async def prompt(self) -> None:
        """Wait for the next prompt."""
        self.output += (await self._screen.receive_until(b"c: cancel) > ", 100_000)).decode() + "\n"

    async def type(self, *lines: str) -> None:
        """Type each line at the next prompt."""
        for line in lines:
            await self.prompt()
            os.write(self._keyboard, f"{line}\n".encode())

    async def end(self) -> Ended:
        """Read on to the end."""
        try:
            while True:
                self.output += (await self._screen.receive()).decode()
        except anyio.EndOfStream:
            return Ended(await self.process.wait(), self.output)


@asynccontextmanager
async def at_terminal(command: Sequence[str]) -> AsyncGenerator[Terminal]:
    """Start a demo with somebody at the terminal."""
    keyboard, stdin = pty.openpty()
    try:
        with anyio.fail_after(20):
            async with await anyio.open_process(command, stdin=stdin, stderr=None) as process:
                yield Terminal(process, keyboard)
    finally:
        os.close(stdin)
        os.close(keyboard)
