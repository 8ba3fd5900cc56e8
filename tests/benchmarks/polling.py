"""What a thousand agents cost that wait for work, and how soon a steer reaches one of them."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence
from itertools import cycle
from typing import Final

import anyio
from mcp import Client

from steersman_client import Agent, Host
from tests.benchmarks.bare import TOOL
from tests.benchmarks.calls import ASK
from tests.benchmarks.pairs import Figure, Row, Sample, compare
from tests.benchmarks.processes import Served, serve

AGENTS: Final = 1_000
HOSTS: Final = 10
"""Over HTTP the agents are spread over so many clients, and the root that steers has one to itself: a client's pool
looks at each of its connections, for each request."""
CALLS: Final = 100
"""In one batch: in the ten batches of a comparison each agent is steered once."""
WAIT_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 15.0
"""As long as the SDK lets pass between two signs of life on an HTTP response that stays open: each poll has one."""
LIMIT: Final = 2.0
IDLE_LIMIT: Final = 0.05


class _Waiting:
    """An agent whose host waits for work, reads what comes, and waits again."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._polls = anyio.Event()
        self._arrived = anyio.Event()
        self._arrived_at = 0.0

    async def run(self) -> None:
        turn = after = 0
        while True:
            self._polls.set()
            reading = await self._agent.next(turn=turn, at="idle", after=after, wait=WAIT_SECONDS)
            if reading.open:
                self._arrived_at = time.perf_counter()
                self._arrived.set()
                (message,) = reading.messages
                turn, after = reading.turn, message.seq
                reading = await self._agent.next(turn=turn, at="end", after=after)
                assert not reading.open

    async def polls(self) -> None:
        """Return once the server has its poll."""
        await self._polls.wait()
        # This request is behind it.
        await self._agent.watch(seen=0)

    async def steer(self, root: Agent) -> float:
        """Steer it, and return how many seconds later its host had the message."""
        self._polls, self._arrived = anyio.Event(), anyio.Event()
        started = time.perf_counter()
        result = await root.call_tool("steer_subagent", {"subagent_id": self._agent.id, "message": "Look there first."})
        await self._arrived.wait()
        assert result.structured_content is not None
        assert result.structured_content["route"] == "wakeup"
        await self.polls()
        return self._arrived_at - started


def _no_op(bare: Client) -> Sample:
    async def call() -> float:
        started = time.perf_counter()
        await bare.call_tool(TOOL, ASK)
        return time.perf_counter() - started

    async def sample() -> float:
        return statistics.median([await call() for _ in range(CALLS)])

    return sample


def _steer(root: Agent, waiting: Sequence[_Waiting]) -> Sample:
    targets = cycle(waiting)

    async def sample() -> float:
        return statistics.median([await next(targets).steer(root) for _ in range(CALLS)])

    return sample


async def _idle(what: str, served: Served) -> Figure:
    """How much of a processor's time the server takes while nothing happens."""
    started, cpu_seconds = time.perf_counter(), served.cpu_seconds()
    await anyio.sleep(IDLE_SECONDS)
    used = served.cpu_seconds() - cpu_seconds
    return Figure(what, used / (time.perf_counter() - started), IDLE_LIMIT)


async def measure(wire: str, name: str) -> list[Row | Figure]:
    """Have all agents wait, steer them in turns, and then leave them alone."""
    async with serve("bare", wire) as bare, serve("steersman", wire, clients=1 + HOSTS) as ours:
        assert bare.client.protocol_version == ours.client.protocol_version == "2026-07-28"
        first, *others = [Host(client) for client in ours.clients]
        hosts = cycle(others or [first])
        root = await first.enter()
        waiting = [_Waiting(await next(hosts).enter(owner=root)) for _ in range(AGENTS - 1)]
        everybody = [_Waiting(root), *waiting]
        measured: list[Row | Figure] = []
        async with anyio.create_task_group() as group:
            for each in everybody:
                group.start_soon(each.run)
            for each in everybody:
                await each.polls()
            what = f"steer to a waiting host, {AGENTS:,} poll / no-op, {name}"
            measured.append(await compare(what, _no_op(bare.client), _steer(root, waiting), limit=LIMIT))
            measured.append(await _idle(f"processor time while {AGENTS:,} agents poll, {name}", ours))
            group.cancel_scope.cancel()
    return measured


async def rows() -> list[Row | Figure]:
    # Each connection is an open file, here and in the server.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return [*await measure("http", "HTTP"), *await measure("stdio", "stdio")]
