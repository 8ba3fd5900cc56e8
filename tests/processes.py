"""Real `steersman` processes: pipes of hosts, and the server behind them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from mcp import Client
from mcp.client.session import ElicitationFnT

from steersman_client import Host
from tests.pipes import json_lines

Era = Literal["legacy", "modern"]

SECONDS: Final = 20
"""A process takes a while to start on a busy machine."""


@dataclass
class PipeProcess:
    """A host's connection: a pipe process, and a client at its end."""

    process: subprocess.Popen[bytes]
    client: Client

    @property
    def host(self) -> Host:
        return Host(self.client)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def read_so_far(self) -> int:
        """How many bytes it has read of anything."""
        [line] = [each for each in Path(f"/proc/{self.process.pid}/io").read_text().splitlines() if "rchar" in each]
        return int(line.split()[1])

    async def passed_on(self, *, since: int) -> None:
        """Wait until it has passed on what it read since then: it sleeps only when nothing is left to do."""
        with anyio.fail_after(SECONDS):
            while self.read_so_far() == since or _state(self.process.pid) != "S":
                await anyio.to_thread.run_sync(lambda: None)


@asynccontextmanager
async def pipe(
    state: Path,
    *arguments: str,
    era: Era = "legacy",
    elicit: ElicitationFnT | None = None,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = ("-m", "steersman"),
    seconds: float | None = SECONDS,
    stderr: int = subprocess.PIPE,
) -> AsyncGenerator[PipeProcess]:
    """A pipe to the server of a state directory, which it starts if there is none. The block may last so long."""
    to_pipe, to_client = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, *command, "--state-dir", str(state), *arguments],
        stdin=to_pipe[0],
        stdout=to_client[1],
        stderr=stderr,
        env={**os.environ, **(env or {})},
    )
    os.close(to_pipe[0])
    os.close(to_client[1])
    ends = to_client[0], to_pipe[1]
    mode = "legacy" if era == "legacy" else "auto"
    try:
        with anyio.fail_after(seconds):
            async with Client(json_lines(*ends), mode=mode, elicitation_callback=elicit, cache=None) as client:
                yield PipeProcess(process, client)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def said(of: PipeProcess) -> str:
    """What the pipe wrote on stderr, once it has ended."""
    assert of.process.stderr is not None
    return of.process.stderr.read().decode()


async def server_pid(state: Path) -> int:
    """The server that runs, once it serves."""
    return (await control(state, "status"))["pid"]


async def kill_server(state: Path) -> int:
    """End the server with no chance to say anything. Returns who it was."""
    pid = await server_pid(state)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)
    return pid


async def gone(pid: int) -> None:
    """Wait until a process that is nobody's child of ours is gone."""
    with anyio.fail_after(SECONDS):
        while _lives(pid):
            await anyio.to_thread.run_sync(lambda: None)


def _lives(pid: int) -> bool:
    try:
        # What its other threads hold open is open until the last of them is gone.
        threads = os.listdir(f"/proc/{pid}/task")
        return len(threads) > 1 or _state(pid) != "Z"
    except OSError:
        return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def control(state: Path, method: str, **params: Any) -> Mapping[str, Any]:
    """Ask the server that runs something, as the human's own tools do."""
    from steersman.settings import Source
    from steersman.terminal.connection import connect

    def ask() -> Mapping[str, Any]:
        connection = connect(Source({"state-dir": str(state)}, {}), start=False)
        try:
            return connection.request(method, **params)
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(ask)
