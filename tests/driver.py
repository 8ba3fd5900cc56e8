"""Async code under a synchronous test, driven until nothing moves any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Driver(Generic[S]):
    """Opens a stage on an event loop of its own, and runs one job after the other on it.

    Each job returns once every task on the loop waits for something that only a later job can bring. So the order of
    things is the test's own, and nothing depends on the machine.
    """

    def __init__(self, stage: Callable[[], AbstractAsyncContextManager[S]]) -> None:
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._jobs: asyncio.Queue[tuple[Callable[[S], Awaitable[Any]], asyncio.Future[Any]] | None] = asyncio.Queue()
        # The stage is opened and closed by one task, as task groups and cancel scopes demand.
        self._main = self._loop.create_task(self._live(stage))

    def do(self, job: Callable[[S], Awaitable[T]]) -> T:
        """Run a job, and everything that comes of it, and return what it returned."""
        return self._runner.run(self._run(job))

    def close(self) -> None:
        """Close the stage. What was raised on it is raised here."""
        self._jobs.put_nowait(None)
        try:
            self._runner.run(self._end())
        finally:
            self._runner.close()

    async def _live(self, stage: Callable[[], AbstractAsyncContextManager[S]]) -> None:
        async with stage() as opened:
            while (entry := await self._jobs.get()) is not None:
                job, done = entry
                try:
                    done.set_result(await job(opened))
                except Exception as error:  # noqa: BLE001 - raised where the job was given
                    done.set_exception(error)

    async def _run(self, job: Callable[[S], Awaitable[T]]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put_nowait((job, done))
        await asyncio.wait([done, self._main], return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            await self._main
        await self._settle()
        return done.result()

    async def _settle(self) -> None:
        ready: Any = vars(self._loop)["_ready"]
        await asyncio.sleep(0)
        while ready:  # noqa: ASYNC110 - it is the loop itself that is waited for
            await asyncio.sleep(0)

    async def _end(self) -> None:
        await self._main
