"""Leases: who lapses when, in constant time for those who do not."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

NEVER: Final = float("inf")


class Leased(Protocol):
    """What has a lease."""

    ended: bool
    lease_end: float
    """The moment at which it lapses; `NEVER` while something keeps it."""
    queued_for: float
    """The moment at which the queue looks at it next."""


L = TypeVar("L", bound=Leased)


class LeaseQueue(Generic[L]):
    """Finds those whose lease has run out.

    It may hold one for a moment that its lease has outgrown, or been cut short of; an entry counts only if it is the
    one that its owner was queued for last.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, L]] = []
        self._order = itertools.count()

    def expire_at(self, leased: L, moment: float) -> None:
        """Let a lease run out at a moment, or at another one than before."""
        leased.lease_end = moment
        if moment < leased.queued_for:
            self._add(leased)

    def lapsed(self, now: float) -> Iterator[L]:
        """Those whose lease has run out, each once."""
        while self._queue and self._queue[0][0] <= now:
            moment, _, leased = heapq.heappop(self._queue)
            if moment != leased.queued_for or leased.ended:
                continue
            leased.queued_for = NEVER
            if leased.lease_end <= now:
                yield leased
            elif leased.lease_end < NEVER:
                self._add(leased)

    def _add(self, leased: L) -> None:
        leased.queued_for = leased.lease_end
        heapq.heappush(self._queue, (leased.queued_for, next(self._order), leased))
