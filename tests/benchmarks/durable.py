"""What it costs that an accepted steer is on the disk before its receipt is given."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from mcp import Client

from steersman.providers.elicitation import ElicitationProvider
from steersman.registry import Activation, Binding
from steersman.services import Services, make_services
from steersman.storage.journal import open_journal
from steersman_client import Host
from tests.benchmarks.bare import TOOL
from tests.benchmarks.calls import ASK
from tests.benchmarks.pairs import Row, Sample, compare
from tests.benchmarks.processes import serve

CALLS: Final = 300
PARENTS: Final = 64
STEERS: Final = 20
"""Of each parent in one batch."""
LIMIT: Final = 2.0
LIMIT_TOGETHER: Final = 1 / 5
TEXT: Final = "Look at the tests first, and tell me what they say."


async def steer_over_http() -> Row:
    async with serve("bare", "http") as bare_server, serve("durable", "http") as our_server:
        host = Host(our_server.client)
        parent = await host.enter()

        async def steer() -> float:
            # One of its own for each batch: a mailbox that nobody reads is full at some point.
            child = await host.enter(owner=parent)
            started = time.perf_counter()
            for _ in range(CALLS):
                result = await parent.call_tool("steer_subagent", {"subagent_id": child.id, "message": TEXT})
                assert not result.is_error
            return (time.perf_counter() - started) / CALLS

        return await compare(
            "durable steer / no-op of the bare SDK, modern HTTP", _no_op(bare_server.client), steer, limit=LIMIT
        )


def _no_op(client: Client) -> Sample:
    async def sample() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            await client.call_tool(TOOL, ASK)
        return (time.perf_counter() - started) / CALLS

    return sample


async def together() -> Row:
    """In one process: what parents that steer at once share is the transaction."""
    with TemporaryDirectory() as state_dir:
        async with open_journal(Path(state_dir)) as journal:
            services = make_services([ElicitationProvider()], journal=journal)
            binding = services.registry.connect("local", "host", leased=True)
            parents = [services.registry.enter(binding).activation for _ in range(PARENTS)]
            alone, many = _steers(services, parents[:1], binding), _steers(services, parents, binding)
            return await compare(
                f"durable steer of {PARENTS} parents at once / of one", alone, many, limit=LIMIT_TOGETHER
            )


def _steers(services: Services, parents: list[Activation], binding: Binding) -> Sample:
    async def sample() -> float:
        children = [services.registry.enter(binding, owner=parent).activation for parent in parents]
        await services.journal.append()

        async def steer(parent: Activation, child: Activation) -> None:
            for _ in range(STEERS):
                await services.steering.steer(parent, child.id, TEXT, "step")

        started = time.perf_counter()
        async with anyio.create_task_group() as group:
            for parent, child in zip(parents, children, strict=True):
                group.start_soon(steer, parent, child)
        return (time.perf_counter() - started) / (STEERS * len(parents))

    return sample


async def rows() -> list[Row]:
    return [await steer_over_http(), await together()]
