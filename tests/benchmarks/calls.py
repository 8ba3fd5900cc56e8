"""What a refused question costs a host, against a tool of the bare SDK that does nothing."""

from __future__ import annotations

import time
from typing import Any, Final

from mcp import Client

from steersman_client import Host
from tests.benchmarks.bare import TOOL
from tests.benchmarks.pairs import Row, Sample, compare
from tests.benchmarks.processes import serve

CALLS: Final = 300
LIMIT: Final = 1.3

ASK: Final[dict[str, Any]] = {
    "questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]
}


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
    async with serve("bare", wire) as bare_server, serve("steersman", wire) as our_server:
        bare, ours = bare_server.client, our_server.client
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
