"""Time, as something that is handed in: the services never look at the machine's clock themselves."""

from __future__ import annotations

import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """What the services know of time."""

    def now(self) -> float:
        """Seconds that only ever grow; their zero means nothing."""
        ...

    def wall_time(self) -> float:
        """Seconds since the epoch. They may jump, and are only ever shown."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Return once `now()` is at least `moment`."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall_time(self) -> float:
        return time.time()

    async def sleep_until(self, moment: float) -> None:
        await anyio.sleep(max(0.0, moment - time.monotonic()))


async def wait_for(event: anyio.Event, clock: Clock, deadline: float) -> None:
    """Return once `event` is set or `deadline` has come."""
    async with anyio.create_task_group() as group:

        async def expire() -> None:
            await clock.sleep_until(deadline)
            group.cancel_scope.cancel()

        group.start_soon(expire)
        await event.wait()
        group.cancel_scope.cancel()
