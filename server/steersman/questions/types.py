"""What is asked and what comes back: plain values, as the journal keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Via = Literal["elicitation", "console"]


@dataclass(frozen=True)
class Option:
    """One choice of a question."""

    label: str
    description: str = ""


@dataclass(frozen=True)
class Question:
    """One question to the human. Without options it is free text."""

    id: str
    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False

    @property
    def characters(self) -> int:
        """How much text it holds."""
        options = sum(len(option.label) + len(option.description) for option in self.options)
        return len(self.id) + len(self.question) + len(self.header) + options


@dataclass(frozen=True)
class PlanReview:
    """The intent of a question that has a plan reviewed: what it reviews, and which label approves it."""

    plan: str
    approve: str


@dataclass(frozen=True)
class Answer:
    """What the human said to one question. Labels are those that were asked, byte for byte."""

    id: str
    selected: tuple[str, ...] = ()
    custom: str | None = None
    skipped: bool = False
