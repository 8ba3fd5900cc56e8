"""The services of one server process, put together once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.clock import Clock, SystemClock
from steersman.journal import Journal, MemoryJournal
from steersman.mailboxes import Mailboxes
from steersman.plans import PlanMode, PlanModePolicy, PlanReviews
from steersman.questions.service import UserQuestions
from steersman.questions.types import Provider
from steersman.registry import AgentRegistry
from steersman.steering import Steering
from steersman.turns import Turns


@dataclass(frozen=True)
class Services:
    """Everything behind the tools."""

    clock: Clock
    journal: Journal
    registry: AgentRegistry
    questions: UserQuestions
    plan_mode: PlanMode
    reviews: PlanReviews
    mailboxes: Mailboxes
    steering: Steering
    turns: Turns

    def withdraw_all(self) -> None:
        """Have every call that waits end at once, because the server is going away."""
        self.questions.withdraw_all()
        self.turns.release_all()


def make_services(
    providers: Sequence[Provider],
    *,
    plan_mode: PlanModePolicy = "tracked",
    ask_timeout: float | None = None,
    clock: Clock | None = None,
    journal: Journal | None = None,
) -> Services:
    """Put the services together.

    Args:
        providers: who can reach the human, in the order they are tried.
        plan_mode: whether plan mode is tracked for each agent, or on for every root.
        ask_timeout: seconds after which an unanswered question is withdrawn; none waits for ever.
        clock: the machine's, if omitted.
        journal: one in memory, if omitted.
    """
    clock = clock or SystemClock()
    journal = journal or MemoryJournal()
    registry = AgentRegistry(clock)
    mailboxes = Mailboxes()
    # The first fold: the others look into it.
    journal.fold(mailboxes.apply)
    questions = UserQuestions(registry, clock=clock, journal=journal, providers=providers, timeout=ask_timeout)
    mode = PlanMode(mailboxes, journal=journal, policy=plan_mode)
    return Services(
        clock=clock,
        journal=journal,
        registry=registry,
        questions=questions,
        plan_mode=mode,
        reviews=PlanReviews(questions, mode, journal=journal),
        mailboxes=mailboxes,
        steering=Steering(registry, mailboxes, clock=clock, journal=journal),
        turns=Turns(registry, mailboxes, mode, clock=clock, journal=journal),
    )
