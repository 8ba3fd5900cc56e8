"""The services of one server process, put together once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.clock import Clock, SystemClock
from steersman.human import Human
from steersman.journal import Journal, MemoryJournal
from steersman.mailboxes import Mailboxes
from steersman.plans import PlanMode, PlanReviews
from steersman.providers.console import ConsoleProvider
from steersman.questions.requests import Provider
from steersman.questions.service import UserQuestions
from steersman.registry import AgentRegistry
from steersman.steering import Steering
from steersman.tokens import Tokens
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
    human: Human
    tokens: Tokens

    def withdraw_all(self) -> None:
        """Have every call that waits end at once, because the server is going away."""
        self.questions.withdraw_all()
        self.turns.release_all()


def make_services(
    providers: Sequence[Provider],
    *,
    clock: Clock | None = None,
    journal: Journal | None = None,
) -> Services:
    """Put the services together.

    Args:
        providers: who can reach the human, besides pages and terminals of ours; each host's settings say in which
            order they are tried.
        clock: the machine's, if omitted.
        journal: one in memory, if omitted.
    """
    clock = clock or SystemClock()
    journal = journal or MemoryJournal()
    # The folds, in the order in which they look into each other.
    registry = AgentRegistry(clock, journal)
    mailboxes = Mailboxes()
    console = ConsoleProvider()
    journal.fold(mailboxes.apply)
    questions = UserQuestions(registry, clock=clock, journal=journal, providers=[*providers, console])
    mode = PlanMode(mailboxes, journal=journal)
    steering = Steering(registry, mailboxes, clock=clock, journal=journal)
    services = Services(
        clock=clock,
        journal=journal,
        registry=registry,
        questions=questions,
        plan_mode=mode,
        reviews=PlanReviews(questions, mode, journal=journal),
        mailboxes=mailboxes,
        steering=steering,
        turns=Turns(registry, mailboxes, mode, clock=clock, journal=journal),
        human=Human(registry, questions, steering, mode, console, journal=journal),
        tokens=Tokens(clock=clock, journal=journal),
    )
    journal.restore()
    questions.resume()
    return services
