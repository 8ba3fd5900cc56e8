"""The append-only record of what happened.

A service appends a fact before it acts on it and before anybody is told of it. Nothing secret is in an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from steersman.questions.types import Answer, Question, Via

MEMORY_EVENTS: Final = 10_000


@dataclass(frozen=True)
class AgentEntered:
    realm: str
    agent_id: str
    owner_id: str | None


@dataclass(frozen=True)
class AgentExited:
    realm: str
    agent_id: str
    outcome: Literal["completed", "failed", "aborted"]
    final: str


@dataclass(frozen=True)
class QuestionAsked:
    realm: str
    agent_id: str
    card_id: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class QuestionAnswered:
    realm: str
    agent_id: str
    card_id: str
    answers: tuple[Answer, ...]
    via: Via


@dataclass(frozen=True)
class QuestionClosed:
    """A question that ended without an answer, and the code its asker was given."""

    realm: str
    agent_id: str
    card_id: str
    code: str


@dataclass(frozen=True)
class PlanModeSet:
    realm: str
    agent_id: str
    active: bool


@dataclass(frozen=True)
class PlanApproved:
    realm: str
    agent_id: str
    review_id: str
    plan_sha256: str


Event = AgentEntered | AgentExited | QuestionAsked | QuestionAnswered | QuestionClosed | PlanModeSet | PlanApproved


class Journal(Protocol):
    """Where facts are made durable."""

    async def append(self, event: Event) -> None:
        """Return once `event` is durable."""
        ...


class MemoryJournal:
    """A journal that lives as long as the process, and remembers the newest facts only."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MEMORY_EVENTS)

    @property
    def events(self) -> Sequence[Event]:
        return tuple(self._events)

    async def append(self, event: Event) -> None:
        self._events.append(event)
