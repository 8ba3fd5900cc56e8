"""Two ways to do a thing, timed in turns, and how many times longer the second takes."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

PAIRS: Final = 9
INTERVAL: Final = (1, 7)
"""The second smallest and second largest of nine hold the median between them with 96% confidence."""

Sample = Callable[[], Awaitable[float]]
"""Runs one batch and returns the seconds that one call took."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        what: what is compared, the thing measured first.
        base: seconds of one call of what it is compared with, the median.
        measured: seconds of one call of the thing, the median.
        ratios: measured by base, one for each pair.
        limit: what the median ratio must not pass.
    """

    what: str
    base: float
    measured: float
    ratios: Sequence[float]
    limit: float

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit

    def __str__(self) -> str:
        low, high = (sorted(self.ratios)[at] for at in INTERVAL)
        times = f"{_duration(self.base):>9}  {_duration(self.measured):>9}"
        verdict = "ok" if self.holds else "BROKEN"
        return f"{self.what:<58}  {times}  {self.ratio:>5.2f}  {low:.2f} to {high:.2f}  {self.limit:>5.2f}  {verdict}"


@dataclass(frozen=True)
class Figure:
    """A share of one processor's time, compared with nothing but what it must not pass."""

    what: str
    share: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.share <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "BROKEN"
        return f"{self.what:<58}  {'':>9}  {self.share:>9.2%}  {'':>5}  {'':<12}  {self.limit:>5.0%}  {verdict}"


HEADER: Final = f"{'':<58}  {'base':>9}  {'measured':>9}  {'ratio':>5}  {'96% of it':<12}  {'limit':>5}"


async def compare(what: str, base: Sample, measured: Sample, *, limit: float) -> Row:
    """Run the two in turns, after one batch of each that does not count."""
    await base()
    await measured()
    pairs = [(await base(), await measured()) for _ in range(PAIRS)]
    return Row(
        what,
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
        [second / first for first, second in pairs],
        limit,
    )


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"
