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

    async def sleep_until(self, moment: float) -> None:
        """Return once `now()` is at least `moment`."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, moment: float) -> None:
        await anyio.sleep(max(0.0, moment - time.monotonic()))
