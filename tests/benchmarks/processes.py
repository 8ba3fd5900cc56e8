"""Server processes to be timed, and clients that are connected to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.benchmarks.servers import HOST

ROOT: Final = Path(__file__).resolve().parents[2]
TIMEOUT: Final = httpx2.Timeout(30, read=300)


@dataclass(frozen=True)
class Served:
    """A server process of its own, and who is connected to it."""

    pid: int
    clients: Sequence[Client]

    @property
    def client(self) -> Client:
        return self.clients[0]

    def cpu_seconds(self) -> float:
        """How long the process has run on a processor so far. For Linux."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = after_name[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def serve(kind: str, wire: str, *, clients: int = 1) -> AsyncGenerator[Served]:
    """Run a server of `tests.benchmarks.servers` for a block, with so many clients; over stdio there is one."""
    async with AsyncExitStack() as stack:
        if wire == "stdio":
            known = _children()
            command, *arguments = _command(kind, wire)
            way = stdio_client(StdioServerParameters(command=command, args=arguments, cwd=ROOT))
            client = await stack.enter_async_context(Client(way, cache=None))
            (pid,) = _children() - known
            yield Served(pid, [client])
            return
        pid, url, token = stack.enter_context(_http_server(kind, wire))
        yield Served(pid, [await stack.enter_async_context(_http_client(url, token)) for _ in range(clients)])


@contextmanager
def _http_server(kind: str, wire: str) -> Generator[tuple[int, str, str]]:
    """A server process: its pid, its URL and its token."""
    with subprocess.Popen(_command(kind, wire), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            port, _, token = process.stdout.readline().strip().partition(" ")
            yield process.pid, f"http://{HOST}:{port}/mcp", token
        finally:
            process.kill()


@asynccontextmanager
async def _http_client(url: str, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, limits=limits) as http,
        Client(streamable_http_client(url, http_client=http), cache=None) as client,
    ):
        yield client


def _command(kind: str, wire: str) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.servers", kind, wire]


def _children() -> set[int]:
    """The processes that this thread has started: the SDK tells nobody which one a client has. Linux only."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}
