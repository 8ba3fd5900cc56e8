"""The real server with one rule patched out, named by the first argument: `python mutant_server.py RULE ...`.

With `PIDFILE=path` in place of a rule it is the real server, and leaves its process id in that file.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

import steersman.plans
import steersman.questions.service
import steersman.steering
from steersman.errors import PlanModeError
from steersman.journal import Event, MessageAccepted, Restored, TurnInterrupted
from steersman.mailboxes import Mailboxes
from steersman.plans import Approved, PlanMode, PlanReviews
from steersman.questions.service import UserQuestions
from steersman.registry import Activation
from steersman.steering import Steering
from steersman.turns import At, Reading, Turns


def guard() -> None:
    def admit(self: UserQuestions, agent: object) -> None:
        del self, agent

    UserQuestions.admit = admit


def approval() -> None:
    original = PlanReviews.review

    async def review(self: PlanReviews, plan: str, request: Any) -> Any:
        try:
            return await original(self, plan, request)
        except PlanModeError:
            return Approved("0" * 64, "ask-0", "elicitation")

    PlanReviews.review = review


def digest() -> None:
    def approved(plan_sha256: str, *rest: Any) -> Approved:
        return Approved(plan_sha256[::-1], *rest)

    steersman.plans.Approved = approved  # pyright: ignore[reportAttributeAccessIssue]


def plan_mode() -> None:
    async def set_nothing(self: PlanMode, agent: object, active: bool) -> str:
        del self, agent, active
        return "committed"

    PlanMode.set = set_nothing  # pyright: ignore[reportAttributeAccessIssue]


def answers() -> None:
    original = steersman.questions.service.check_answers

    def check(questions: Any, reply: object) -> Any:
        return tuple(replace(answer, selected=answer.selected[:1]) for answer in original(questions, reply))

    steersman.questions.service.check_answers = check


def routes() -> None:
    def choose(mode: object, status: object) -> tuple[str, str]:
        del mode, status
        return "wakeup", "next_turn"

    steersman.steering.choose_route = choose  # pyright: ignore[reportAttributeAccessIssue]


def steps() -> None:
    original = Turns._take  # pyright: ignore[reportPrivateUsage]

    def take(self: Turns, activation: Activation, turn: int, at: At, after: int) -> Reading:
        if at == "step":
            return self._standing(activation)  # pyright: ignore[reportPrivateUsage]
        return original(self, activation, turn, at, after)

    Turns._take = take  # pyright: ignore[reportPrivateUsage]


def delivery() -> None:
    original = Mailboxes.apply

    def apply(self: Mailboxes, event: Event | Restored) -> None:
        if not (isinstance(event, MessageAccepted) and event.queue == "next_step"):
            original(self, event)

    Mailboxes.apply = apply


def interrupts() -> None:
    def stop_nothing(self: Steering, agent: object) -> Iterable[TurnInterrupted]:
        del self, agent
        return ()

    Steering._stop = stop_nothing  # pyright: ignore[reportPrivateUsage]


def keeps() -> None:
    original = Mailboxes.apply

    def apply(self: Mailboxes, event: Event | Restored) -> None:
        original(self, event)
        if isinstance(event, TurnInterrupted):
            self._box(event.realm, event.agent_id).next_turn.clear()  # pyright: ignore[reportPrivateUsage]

    Mailboxes.apply = apply


def last_look() -> None:
    original = Turns._take  # pyright: ignore[reportPrivateUsage]

    def take(self: Turns, activation: Activation, turn: int, at: At, after: int) -> Reading:
        box = self._mailboxes.of(activation.agent)  # pyright: ignore[reportPrivateUsage]
        waiting = box.next_step
        if at == "end":
            box.next_step = deque()
        reading = original(self, activation, turn, at, after)
        box.next_step = waiting
        return reading

    Turns._take = take  # pyright: ignore[reportPrivateUsage]


def closes() -> None:
    original = Turns.next

    async def never_at_the_end(self: Turns, activation: Activation, *, at: At, **rest: Any) -> Reading:
        if at == "end":
            await anyio.sleep_forever()
        return await original(self, activation, at=at, **rest)

    Turns.next = never_at_the_end


RULES: dict[str, Callable[[], None]] = {
    rule.__name__: rule
    for rule in (
        guard,
        approval,
        digest,
        plan_mode,
        answers,
        routes,
        steps,
        delivery,
        interrupts,
        keeps,
        last_look,
        closes,
    )
}

if __name__ == "__main__":
    named = sys.argv.pop(1)
    if named.startswith("PIDFILE="):
        Path(named.removeprefix("PIDFILE=")).write_text(str(os.getpid()))
    else:
        RULES[named]()

    from steersman.cli import main

    main()
