"""One call that asks: the request, its card before the human, and who can carry it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from steersman.questions.types import Answer, PlanReview, Question, Via
from steersman.registry import Activation
from steersman.settings import DEFAULT_HOST_SETTINGS, HostSettings


@dataclass(frozen=True)
class Answered:
    """The answers to a whole call, in the order asked."""

    answers: tuple[Answer, ...]
    via: Via
    card_id: str
    replayed: bool = False
    """Given before to this very call, whose first reply was lost: it has had its effect."""


@dataclass(frozen=True)
class Suspended:
    """The host shows the question itself and calls again with what the human said.

    The payload is what the provider's own protocol needs for that; nobody else reads it.
    """

    payload: object


class Channel(Protocol):
    """The way back to the host over which one call came. Only providers look inside."""


@dataclass(frozen=True)
class Resumption:
    """A host's second call: the handle it was given, and what it says the human answered.

    Either may be missing; then the call is no answer to anything.
    """

    handle: str | None
    answer: object
    """The answer as JSON, unread."""


@dataclass(frozen=True)
class AskRequest:
    """One batch of questions, and the call that brought it."""

    questions: tuple[Question, ...]
    agent: Activation | None
    """Who asks, perhaps dead. None only for a direct call in Python, which nobody needs to admit."""
    call_digest: str = ""
    """The digest of tool and arguments: the same call has the same one."""
    call_key: str | None = None
    """The host's own id of the call: a retry carries the same one."""
    intent: PlanReview | None = None
    channel: Channel | None = None
    resumption: Resumption | None = None
    host: HostSettings = DEFAULT_HOST_SETTINGS
    """What holds for the host that the call came from."""


CardState = Literal["open", "settled", "withdrawn", "orphaned"]
"""Its asker waits; it has an outcome, once and for all; nobody waits any more, or nobody since the server that had it
open died: then an answer is a message to the agent."""


@dataclass(eq=False)
class Card:
    """One question batch before the human, from the moment it is asked until it is settled."""

    id: str
    request: AskRequest
    asked_at: float
    """By the clock that only grows, in this process."""
    shown_since: float = 0.0
    """Seconds since the epoch."""
    state: CardState = "open"

    @property
    def waits(self) -> bool:
        """Whether it is shown as waiting for the human."""
        return self.state in ("open", "orphaned")


Reply = Sequence[Answer]
"""What a provider brought back, unchecked."""


class Provider(Protocol):
    """Something that can put a question before the human and bring the answer back."""

    @property
    def name(self) -> Via:
        """What `via` says of its answers."""
        ...

    def obstacle(self, request: AskRequest) -> str | None:
        """Why it cannot reach the human for this request, as a clause without a full stop; None if it can."""
        ...

    async def ask(self, card: Card, handle: HandleMaker) -> Reply | Suspended:
        """Put the card before the human and wait, or have the host do so.

        Cancelling it withdraws the card.

        Raises:
            UserQuestionError: `ASK_DECLINED`, `ASK_CANCELLED`, `ASK_ABORTED` or `ANSWER_INVALID`.
            ProviderUnavailableError: it could not reach the human after all; the next provider is asked.
        """
        ...

    def resume(self, card: Card, answer: object) -> Reply:
        """Read what the host brought back for a suspended card. Raises as `ask`."""
        ...


class HandleMaker(Protocol):
    """Makes a new handle under which a suspended card is found again."""

    def __call__(self) -> str: ...


class ProviderUnavailableError(Exception):
    """The provider cannot reach the human after all; the message says why, as a whole sentence."""
