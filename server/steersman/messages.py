"""Instructions on their way to an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SteerMode = Literal["step", "turn"]
"""When a message is to be read: at the next step boundary, or as a turn of its own that stops the current one."""
Route = Literal["step", "turn", "wakeup", "cold-resume"]
"""The way a message took."""
Queue = Literal["next_step", "next_turn"]
"""An agent's two ordered lists of waiting messages."""
Kind = Literal["agent", "human", "host", "notice"]


@dataclass(frozen=True)
class Message:
    """One message. Its text is data that somebody else wrote."""

    id: str
    text: str
    kind: Kind
    agent_id: str | None
    """The sender, or in whose name a host sent it; of a notice, the agent that it is about."""
    accepted_at: float
    """Seconds since the epoch, by the wall clock; nothing is ordered by it."""


@dataclass(frozen=True)
class CallId:
    """The host's own id of a call, and the digest of what it said: a retry carries both again."""

    key: str
    digest: str


@dataclass(frozen=True)
class Receipt:
    """What the sender of an accepted message is told."""

    route: Route
    message_id: str
    queued_ahead: int
    """How many messages the target reads before this one."""

    def as_json(self) -> dict[str, object]:
        return {"route": self.route, "message_id": self.message_id, "queued_ahead": self.queued_ahead}
