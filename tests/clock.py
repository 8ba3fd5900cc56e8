"""A clock that stands still until a test moves it."""

from __future__ import annotations

import anyio


class ManualClock:
    """Time for tests: `advance` moves it and wakes whoever sleeps up to that moment."""

    def __init__(self) -> None:
        self._now = 1_000.0
        self.wall = 1_800_000_000.0
        """What the clock on the wall shows; it stands still, and may be set."""
        self._sleepers: list[tuple[float, anyio.Event]] = []
        self._changed = anyio.Event()

    def now(self) -> float:
        return self._now

    def wall_time(self) -> float:
        return self.wall

    async def sleep_until(self, moment: float) -> None:
        if moment <= self._now:
            await anyio.lowlevel.checkpoint()
            return
        sleeper = (moment, anyio.Event())
        self._sleepers.append(sleeper)
        self._changed.set()
        self._changed = anyio.Event()
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for moment, woken in self._sleepers:
            if moment <= self._now:
                woken.set()

    async def until_sleepers(self, count: int = 1) -> None:
        """Wait until so many tasks sleep on this clock."""
        while len(self._sleepers) < count:
            await self._changed.wait()
