"""The real server with one rule patched out, named by the first argument: `python mutant_server.py RULE ...`.

With `PIDFILE=path` in place of a rule it is the real server, and leaves its process id in that file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import steersman.plans
import steersman.questions.service
from steersman.errors import PlanModeError
from steersman.plans import Approved, PlanMode, PlanReviews
from steersman.questions.service import UserQuestions


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


RULES: dict[str, Callable[[], None]] = {rule.__name__: rule for rule in (guard, approval, digest, plan_mode, answers)}

if __name__ == "__main__":
    named = sys.argv.pop(1)
    if named.startswith("PIDFILE="):
        Path(named.removeprefix("PIDFILE=")).write_text(str(os.getpid()))
    else:
        RULES[named]()

    from steersman.cli import main

    main()
