"""The append-only record of what happened, and the folds of it that the services work with.

A fact is appended in the moment in which it is decided, and takes effect in every fold at once; whoever is told of it
waits until it is durable. Facts become durable in the order in which they were appended, so nothing that is told
rests on something that a crash can take back. Nothing secret is in an event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from steersman.agents import EndedBy, EnteredBy, Mode, Outcome, SessionHeader
from steersman.messages import CallId, Message, Queue, Receipt
from steersman.questions.types import Answer, PlanReview, Question, Via
from steersman.settings import Profile

MEMORY_EVENTS: Final = 10_000


@dataclass(frozen=True)
class AgentEntered:
    """A new activation; one that lived under the id before is dead."""

    realm: str
    agent_id: str
    owner_id: str | None
    by: EnteredBy
    binding: str
    """The key of what it was entered over."""
    credential_hash: str | None
    header: SessionHeader
    label: str
    mode: Mode
    key_hash: str | None
    """The resume key's hash; none for agents that no host entered by name."""


@dataclass(frozen=True)
class AgentBound:
    """A live agent came over another connection too."""

    realm: str
    agent_id: str
    binding: str


@dataclass(frozen=True)
class AgentUnbound:
    """One of its connections was closed for good; it lives on over others."""

    realm: str
    agent_id: str
    binding: str


@dataclass(frozen=True)
class AgentExited:
    """Its host said that the activation is over."""

    realm: str
    agent_id: str
    outcome: Outcome
    final: str


@dataclass(frozen=True)
class AgentEnded:
    """The activation is over without its host saying so."""

    realm: str
    agent_id: str
    by: EndedBy


@dataclass(frozen=True)
class QuestionAsked:
    """A card was put before the human, or again: by the same call, after a server that died with it."""

    realm: str
    agent_id: str
    card_id: str
    questions: tuple[Question, ...]
    intent: PlanReview | None
    call_digest: str
    call_key: str | None


@dataclass(frozen=True)
class QuestionSuspended:
    """The host shows the card itself and comes again with the answer under this handle."""

    realm: str
    agent_id: str
    card_id: str
    provider: Via
    handle_hash: str


@dataclass(frozen=True)
class QuestionAnswered:
    realm: str
    agent_id: str
    card_id: str
    answers: tuple[Answer, ...]
    via: Via
    answer_digest: str | None = None
    """Of what the host brought under a handle."""


@dataclass(frozen=True)
class QuestionClosed:
    """A question that ended without an answer, and what its asker was given."""

    realm: str
    agent_id: str
    card_id: str
    code: str
    reason: str | None = None
    answer_digest: str | None = None


@dataclass(frozen=True)
class QuestionOrphaned:
    """The server died while the question was open. Nobody waits for the answer any more."""

    realm: str
    agent_id: str
    card_id: str


@dataclass(frozen=True)
class QuestionAnsweredLate:
    """The human answered when nobody waited any more: the agent reads it as a message, and no call gets it."""

    realm: str
    agent_id: str
    card_id: str
    answers: tuple[Answer, ...]
    message_id: str


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


@dataclass(frozen=True)
class TokenMade:
    """A bearer token for HTTP. `realm` is whom it stands for."""

    realm: str
    token_id: str
    label: str
    profile: Profile | None
    created_at: float
    token_hash: str


@dataclass(frozen=True)
class TokenRevoked:
    realm: str
    token_id: str


Event = (
    AgentEntered
    | AgentBound
    | AgentUnbound
    | AgentExited
    | AgentEnded
    | QuestionAsked
    | QuestionSuspended
    | QuestionAnswered
    | QuestionClosed
    | QuestionOrphaned
    | QuestionAnsweredLate
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
    | TokenMade
    | TokenRevoked
)
"""What happened. Each is stored once and never changed."""


@dataclass(frozen=True)
class AgentRestored:
    """An agent that was there before, live or not. If it lives, its last `AgentEntered` follows, with what
    it was bound to and unbound from since."""

    realm: str
    agent_id: str
    label: str
    mode: Mode
    header: SessionHeader
    key_hash: str | None
    finished: bool


@dataclass(frozen=True)
class MailboxRestored:
    """What its events came to; after those of the agent."""

    realm: str
    agent_id: str
    turn: int
    open: bool
    interrupted: bool
    worked: bool
    handed_out: int
    confirmed: int
    received: int
    unconfirmed: tuple[tuple[int, Message], ...]
    next_step: tuple[Message, ...]
    next_turn: tuple[Message, ...]


@dataclass(frozen=True)
class PlanModeRestored:
    realm: str
    agent_id: str
    active: bool
    queued: bool | None


@dataclass(frozen=True)
class ReceiptRestored:
    """A call whose message was accepted; in the order of acceptance."""

    realm: str
    agent_id: str
    """The sender."""
    call: CallId
    receipt: Receipt


@dataclass(frozen=True)
class CardRestored:
    """A card that waits for the human, or whose call may come again; in the order they were asked."""

    realm: str
    agent_id: str
    card_id: str
    questions: tuple[Question, ...]
    intent: PlanReview | None
    call_digest: str
    call_key: str | None
    asked_at: float
    """Seconds since the epoch."""
    suspended_by: Via | None
    """Who has the host show it, if its call comes again with the answer."""
    handles: tuple[str, ...]
    """The hashes of the handles that are good, oldest first."""
    answer_digest: str | None
    answers: tuple[Answer, ...] | None
    """None if it was not answered."""
    via: Via | None
    code: str | None
    """What it ended with in place of an answer; none with no answers either: it is open."""
    reason: str | None
    orphaned: bool
    """Whether the server that had it open is known to have died."""


@dataclass(frozen=True)
class TokenRestored:
    realm: str
    token_id: str
    label: str
    profile: Profile | None
    created_at: float
    token_hash: str


Restored = (
    AgentRestored
    | MailboxRestored
    | PlanModeRestored
    | ReceiptRestored
    | CardRestored
    | TokenRestored
    | AgentEntered
    | AgentBound
    | AgentUnbound
)
"""What the events of earlier processes came to: what a fold is rebuilt from."""

Fold = Callable[[Event | Restored], None]


class Journal(ABC):
    """Where facts are made durable, in the order they come."""

    def __init__(self) -> None:
        self._folds: list[Fold] = []

    def fold(self, apply: Fold) -> None:
        """Have `apply` see what `restore` gives, and every event from here on, in order. It must not fail."""
        self._folds.append(apply)

    def restore(self) -> None:
        """Have the folds rebuilt from what was stored before. Once, when all are there and before the first event."""
        for fact in self._stored():
            for apply in self._folds:
                apply(fact)

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

    def _stored(self) -> Iterable[Restored]:
        return ()

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
