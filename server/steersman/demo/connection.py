"""A server process of the demo's own, and the client connected to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import anyio
import httpx2
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client

_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 5
_URL: Final = re.compile(r"http://[^\s\"']+")
_LOG_LINES: Final = 5


class ServerFailedError(Exception):
    """The server process did not come up; the message says how far it came."""


@dataclass(frozen=True)
class ServerFiles:
    """Where a server process of the demo keeps what it writes."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def last_log_lines(self) -> list[str]:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return text.splitlines()[-_LOG_LINES:]


def connect(
    files: ServerFiles, *, http: bool, server_command: Sequence[str] | None, elicitation: ElicitationFnT
) -> AbstractAsyncContextManager[Client]:
    """Start a server process and connect to it; leaving ends the process.

    Args:
        files: where the server keeps its state and its log.
        http: serve streamable HTTP on a free port, in place of the process's own pipes.
        server_command: what to start in place of this very package.
        elicitation: shows forms to the human.

    Raises:
        ServerFailedError: the server ended, or said no address in time.
        MCPError: the server does not speak MCP.
    """
    command = list(server_command or (sys.executable, "-m", "steersman"))
    return (_over_http if http else _over_stdio)(command, files, elicitation)


@asynccontextmanager
async def _over_stdio(
    command: Sequence[str], files: ServerFiles, elicitation: ElicitationFnT
) -> AsyncGenerator[Client]:
    arguments = [*command[1:], "--standalone"]
    with files.log.open("w") as log:
        pipe = stdio_client(StdioServerParameters(command=command[0], args=arguments), errlog=log)
        async with Client(pipe, elicitation_callback=elicitation) as client:
            yield client


@asynccontextmanager
async def _over_http(command: Sequence[str], files: ServerFiles, elicitation: ElicitationFnT) -> AsyncGenerator[Client]:
    arguments = ["serve", "--host", "127.0.0.1", "--port", "0", "--state-dir", str(files.state)]
    process = await anyio.open_process(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=get_default_environment(),
        start_new_session=True,  # Ctrl-C is for the demo, which ends the server itself
    )
    try:
        async with anyio.create_task_group() as group:
            with files.log.open("w") as log:
                assert process.stderr is not None
                lines = TextReceiveStream(process.stderr, errors="replace")
                url = await _address(lines, log)
                group.start_soon(_keep, lines, log)
                headers = {"Authorization": f"Bearer {(files.state / 'token').read_text().strip()}"}
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as http_client,
                    Client(
                        streamable_http_client(url, http_client=http_client), elicitation_callback=elicitation
                    ) as client,
                ):
                    yield client
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _address(stream: TextReceiveStream, log: TextIO) -> str:
    """Read what the server says on standard error until it names its address."""
    said = ""
    with anyio.move_on_after(_START_SECONDS):
        async for text in stream:
            log.write(text)
            log.flush()
            said += text
            found = _URL.search(said.rpartition("\n")[0])
            if found:
                return found[0]
    raise ServerFailedError("The server did not say where it listens.")


async def _keep(stream: TextReceiveStream, log: TextIO) -> None:
    """Keep reading, so that the server never waits for a full pipe."""
    async for text in stream:
        log.write(text)
        log.flush()


async def _end(process: Process) -> None:
    if process.returncode is None:
        # Not `process.terminate()`: it would reap a process that has just ended by itself, and asyncio complains.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    with anyio.move_on_after(_STOP_SECONDS) as waited:
        await process.wait()
    if waited.cancelled_caught:
        process.kill()
        await process.wait()
    await process.aclose()
