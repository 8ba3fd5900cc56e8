"""What the guard costs, with few agents alive and with many."""

from __future__ import annotations

import gc
import time
from typing import Final

from steersman.callers import CREDENTIAL_META, Claim, resolve
from steersman.clock import SystemClock
from steersman.errors import UserQuestionError
from steersman.journal import MemoryJournal
from steersman.questions.service import UserQuestions
from steersman.registry import AgentRegistry
from tests.benchmarks.pairs import Row, Sample, compare

FEW: Final = 10
MANY: Final = 100_000
CALLS: Final = 20_000
CALLERS: Final = 5


class Population:
    """A registry with so many live agents, one in ten a root, and some of their credentials."""

    def __init__(self, agents: int) -> None:
        clock = SystemClock()
        self.registry = AgentRegistry(clock)
        self.questions = UserQuestions(self.registry, clock=clock, journal=MemoryJournal())
        self.binding = self.registry.connect("local", "host", leased=True)
        children: list[str] = []
        root = self.registry.enter(self.binding).activation
        for number in range(1, agents):
            if number % 10 == 0:
                root = self.registry.enter(self.binding).activation
            else:
                children.append(self.registry.enter(self.binding, owner=root).credential)
        step = len(children) // CALLERS
        self.claims = [Claim(self.binding, {CREDENTIAL_META: children[at * step]}) for at in range(CALLERS)]

    async def sample(self) -> float:
        refused = 0
        gc.disable()
        started = time.perf_counter()
        for number in range(CALLS):
            caller = resolve(self.registry, self.claims[number % CALLERS])
            try:
                self.questions.admit(caller)
            except UserQuestionError:
                refused += 1
        seconds = time.perf_counter() - started
        gc.enable()
        assert refused == CALLS
        return seconds / CALLS


async def rows() -> list[Row]:
    few, many = Population(FEW), Population(MANY)
    assert len(many.registry.list("local")) == MANY
    base: Sample = few.sample
    return [await compare(f"guard: {MANY:,} live agents / {FEW}", base, many.sample, limit=1.15)]
