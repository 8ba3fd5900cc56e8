"""What a refused question costs a host, against a tool of the bare SDK that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from steersman_client import Host
from tests.benchmarks.pairs import Row, Sample, compare
from tests.benchmarks.servers import HOST, TOOL

CALLS: Final = 300
ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT: Final = 1.3

ASK: Final[dict[str, Any]] = {
    "questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]
}


def _command(kind: str, wire: str) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.servers", kind, wire]


@contextmanager
def _http_server(kind: str, wire: str) -> Generator[tuple[str, str]]:
    """A server process: its URL and its token."""
    with subprocess.Popen(_command(kind, wire), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            port, _, token = process.stdout.readline().strip().partition(" ")
            yield f"http://{HOST}:{port}/mcp", token
        finally:
            process.kill()


@asynccontextmanager
async def _client(kind: str, wire: str) -> AsyncGenerator[Client]:
    if wire == "stdio":
        command, *arguments = _command(kind, wire)
        way = stdio_client(StdioServerParameters(command=command, args=arguments, cwd=ROOT))
        async with Client(way, cache=None) as client:
            yield client
        return
    with _http_server(kind, wire) as (url, token):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http), cache=None) as client,
        ):
            yield client


def _sample(client: Client, meta: Any, *, refused: bool) -> Sample:
    async def sample() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            result = await client.call_tool(TOOL, ASK, meta=meta)
            assert bool(result.is_error) == refused
        return (time.perf_counter() - started) / CALLS

    return sample


async def row(what: str, wire: str) -> Row:
    """Time a question of an owned child, refused, against the bare server, with the same arguments and `_meta`."""
    async with _client("bare", wire) as bare, _client("steersman", wire) as ours:
        assert bare.protocol_version == ours.protocol_version == "2026-07-28"
        host = Host(ours)
        child = await host.enter(owner=await host.enter())
        result = await child.call_tool(TOOL, ASK)
        assert result.structured_content is not None
        assert result.structured_content["error"]["code"] == "DELEGATED_CALLER"
        base, measured = _sample(bare, child.meta, refused=False), _sample(ours, child.meta, refused=True)
        return await compare(what, base, measured, limit=LIMIT)


async def rows() -> list[Row]:
    return [
        await row("refused ask / no-op of the bare SDK, modern HTTP", "http"),
        await row("refused ask / no-op of the bare SDK, modern HTTP, token", "http-token"),
        await row("refused ask / no-op of the bare SDK, stdio", "stdio"),
    ]
