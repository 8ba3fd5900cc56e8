"""The append-only record of what happened, and the folds of it that the services work with.

A fact is appended in the moment in which it is decided, and takes effect in every fold at once; whoever is told of it
waits until it is durable. Facts become durable in the order in which they were appended, so nothing that is told
rests on something that a crash can take back. Nothing secret is in an event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from steersman.messages import CallId, Message, Queue, Receipt
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
class PlanModeQueued:
    """A switch that waits for the next step boundary; none takes one back that waited."""

    realm: str
    agent_id: str
    active: bool | None


@dataclass(frozen=True)
class PlanApproved:
    realm: str
    agent_id: str
    review_id: str
    plan_sha256: str


@dataclass(frozen=True)
class TurnOpened:
    realm: str
    agent_id: str
    turn: int


@dataclass(frozen=True)
class TurnInterrupted:
    """The turn is to stop; it closes once its host has stopped it."""

    realm: str
    agent_id: str
    turn: int


@dataclass(frozen=True)
class TurnClosed:
    realm: str
    agent_id: str
    turn: int


@dataclass(frozen=True)
class MessageAccepted:
    realm: str
    agent_id: str
    """The target."""
    message: Message
    queue: Queue
    receipt: Receipt
    call: CallId | None
    """The sender's call, if it can be told from others."""


@dataclass(frozen=True)
class NoticeLeft:
    """The agent finds out, once it reads on, that a message of its was not delivered."""

    realm: str
    agent_id: str
    message: Message


@dataclass(frozen=True)
class MessagesHandedOut:
    """In this order each got the next sequence number of its agent."""

    realm: str
    agent_id: str
    message_ids: tuple[str, ...]


@dataclass(frozen=True)
class MessagesConfirmed:
    """The host has everything up to this sequence number."""

    realm: str
    agent_id: str
    seq: int


@dataclass(frozen=True)
class MessageMissed:
    """It can no longer be delivered."""

    realm: str
    agent_id: str
    message_id: str


Event = (
    AgentEntered
    | AgentExited
    | QuestionAsked
    | QuestionAnswered
    | QuestionClosed
    | PlanModeSet
    | PlanModeQueued
    | PlanApproved
    | TurnOpened
    | TurnInterrupted
    | TurnClosed
    | MessageAccepted
    | NoticeLeft
    | MessagesHandedOut
    | MessagesConfirmed
    | MessageMissed
)


class Journal(ABC):
    """Where facts are made durable, in the order they come."""

    def __init__(self) -> None:
        self._folds: list[Callable[[Event], None]] = []

    def fold(self, apply: Callable[[Event], None]) -> None:
        """Have `apply` see every event from here on, in order. It must not fail."""
        self._folds.append(apply)

    def append(self, *events: Event) -> Awaitable[None]:
        """Take events in, at once and together; all folds have seen them when this returns.

        Returns:
            What to wait for before anybody is told: it is done once these events, and all before them, are durable.
            Without events it waits for those before. Nothing is lost if nobody waits.
        """
        for event in events:
            for apply in self._folds:
                apply(event)
        return self._store(events)

    @abstractmethod
    def _store(self, events: Sequence[Event]) -> Awaitable[None]: ...


class MemoryJournal(Journal):
    """A journal that lives as long as the process, and remembers the newest facts only."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque(maxlen=MEMORY_EVENTS)

    @property
    def events(self) -> Sequence[Event]:
        return tuple(self._events)

    def _store(self, events: Sequence[Event]) -> Awaitable[None]:
        self._events.extend(events)
        return _Done()


class _Done:
    def __await__(self) -> Generator[None, None, None]:
        yield from ()
