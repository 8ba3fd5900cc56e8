"""The rows of `sessions` as the writer knows them: what the events of each agent come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from steersman.agents import SessionHeader
from steersman.journal import (
    AgentEnded,
    AgentEntered,
    AgentExited,
    AgentRestored,
    Event,
    MessageAccepted,
    MessagesConfirmed,
    MessagesHandedOut,
    NoticeLeft,
    PlanModeQueued,
    PlanModeSet,
    TurnClosed,
    TurnInterrupted,
    TurnOpened,
)
from steersman.storage.values import load_text, store_text


@dataclass(eq=False, slots=True)
class Session:
    """One agent. Its mailbox and plan mode change as the folds change them."""

    position: int
    realm: str
    agent_id: str
    label: str
    mode: Any
    parent_session: str
    origin: Any
    delegation_depth: int
    key_hash: str | None
    finished: bool = False
    ended_at: float | None = None
    turn: int = 0
    open: bool = False
    interrupted: bool = False
    worked: bool = False
    handed_out: int = 0
    confirmed: int = 0
    received: int = 0
    plan_active: bool = False
    plan_queued: bool | None = None
    activation: int | None = None
    """The position of its live activation, which stands in a table of its own."""

    @property
    def header(self) -> SessionHeader:
        return SessionHeader(self.parent_session, self.origin, self.delegation_depth)

    def restored(self) -> AgentRestored:
        return AgentRestored(
            self.realm, self.agent_id, self.label, self.mode, self.header, self.key_hash, self.finished
        )

    def row(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in _COLUMNS}
        row["label"] = store_text(self.label)
        return row

    def apply(self, event: Event, at: float) -> bool:
        """Take an event of the agent in; whether it changed the row."""
        match event:
            case AgentEntered():
                self.label = event.label or self.label
                self._break_off()
            case AgentExited() | AgentEnded():
                lapsed = isinstance(event, AgentEnded) and event.by == "lapsed"
                self.finished = self.mode == "one-shot" and not lapsed
                self.ended_at = at
                self._break_off()
            case TurnOpened():
                self.turn, self.open, self.interrupted, self.worked = event.turn, True, False, True
            case TurnInterrupted():
                self.interrupted = True
            case TurnClosed():
                self.open = self.interrupted = False
            case MessageAccepted() | NoticeLeft():
                self.received += 1
            case MessagesHandedOut():
                self.handed_out += len(event.message_ids)
            case MessagesConfirmed():
                self.confirmed = event.seq
            case PlanModeSet():
                self.plan_active, self.plan_queued = event.active, None
            case PlanModeQueued():
                self.plan_queued = event.active
            case _:
                return False
        return True

    def _break_off(self) -> None:
        self.open = self.interrupted = self.worked = False
        if self.plan_queued is not None:
            self.plan_active, self.plan_queued = self.plan_queued, None


_COLUMNS: Final = tuple(field.name for field in fields(Session) if field.name != "activation")


def first_entry(event: AgentEntered, position: int) -> Session:
    header = event.header
    return Session(
        position,
        event.realm,
        event.agent_id,
        event.label,
        event.mode,
        header.parent_session,
        header.origin,
        header.delegation_depth,
        event.key_hash,
    )


def load_session(row: Mapping[Any, Any]) -> Session:
    values: dict[str, Any] = dict(row)
    values["label"] = load_text(row["label"])
    return Session(**values)
