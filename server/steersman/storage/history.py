"""What a person is shown of the past, and how it is forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import BindParameter, Column, Connection, Table, and_, bindparam, delete, exists, select, update

from steersman.storage.tables import (
    ACTIVATIONS,
    BINDINGS,
    EVENTS,
    HANDLES,
    MESSAGES,
    QUESTIONS,
    REVIEWS,
    SESSIONS,
    TOKENS,
)
from steersman.storage.values import load_text
from steersman.storage.writing import Sessions

DEFAULT_LIMIT: Final = 1000
_CHUNK: Final = 500


@dataclass(frozen=True)
class HistoryEntry:
    """One thing that happened, with what is still kept of it."""

    position: int
    time: str
    """ISO 8601, UTC, milliseconds."""
    agent_id: str
    """Empty for tokens."""
    kind: str
    """The event, by its name in `steersman.journal`."""
    fields: Mapping[str, Any]
    """JSON values: what the event says, and the texts that belong to it. No hash of a secret."""

    def as_json(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "time": self.time,
            "agent_id": self.agent_id,
            "kind": self.kind,
            **self.fields,
        }


def read_history(
    connection: Connection, realm: str, agent_id: str | None = None, *, limit: int = DEFAULT_LIMIT
) -> list[HistoryEntry]:
    """The newest events of a realm, or of one agent in it; newest last."""
    query = select(EVENTS).where(EVENTS.c.realm == realm)
    if agent_id is not None:
        query = query.where(EVENTS.c.agent_id == agent_id)
    rows = connection.execute(query.order_by(EVENTS.c.position.desc()).limit(limit)).mappings().all()[::-1]
    bodies: list[dict[str, Any]] = [json.loads(row["body"]) for row in rows]
    beside = _Beside(connection, realm, [row["position"] for row in rows], bodies)
    return [
        HistoryEntry(
            row["position"],
            datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="milliseconds"),
            row["agent_id"],
            row["kind"],
            {**body, **beside.of(row["kind"], row["position"], body)},
        )
        for row, body in zip(rows, bodies, strict=True)
    ]


class _Beside:
    """What stands in other tables for a run of events."""

    def __init__(
        self, connection: Connection, realm: str, positions: Sequence[int], bodies: Sequence[Mapping[str, Any]]
    ) -> None:
        self._connection, self._realm = connection, realm

        def named(key: str) -> list[Any]:
            return list({body[key]: None for body in bodies if key in body})

        self._messages = self._load(MESSAGES, MESSAGES.c.id, named("message_id"))
        self._cards = self._load(QUESTIONS, QUESTIONS.c.card_id, named("card_id"))
        self._reviews = self._load(REVIEWS, REVIEWS.c.review_id, named("review_id"))
        self._tokens = self._load(TOKENS, TOKENS.c.token_id, named("token_id"))
        self._activations = self._load(ACTIVATIONS, ACTIVATIONS.c.position, positions)
        self._bindings = self._load(BINDINGS, BINDINGS.c.position, positions, in_realm=False)
        entered = {row["agent_id"] for row in self._activations.values()}
        self._sessions = self._load(SESSIONS, SESSIONS.c.agent_id, list(entered))

    def _load(
        self, table: Table, key: Column[Any], values: Sequence[Any], *, in_realm: bool = True
    ) -> dict[Any, Mapping[str, Any]]:
        found: dict[Any, Mapping[str, Any]] = {}
        for start in range(0, len(values), _CHUNK):
            query = select(table).where(key.in_(values[start : start + _CHUNK]))
            if in_realm:
                query = query.where(table.c.realm == self._realm)
            found |= {row[key.name]: dict(row) for row in self._connection.execute(query).mappings()}
        return found

    def of(self, kind: str, position: int, body: Mapping[str, Any]) -> dict[str, Any]:
        match kind:
            case "MessageAccepted" | "NoticeLeft" | "MessageMissed":
                row = self._messages.get(body["message_id"])
                names = ("kind", "sender", "queue", "route", "queued_ahead", "text")
                return _some(row, {"kind": "source"}, *names)
            case "QuestionAsked":
                return _some(self._cards.get(body["card_id"]), {}, "questions", "plan")
            case "QuestionAnswered":
                return _some(self._cards.get(body["card_id"]), {}, "questions", "answers", "via")
            case "QuestionAnsweredLate":
                return _some(self._cards.get(body["card_id"]), {}, "questions", "answers")
            case "QuestionClosed":
                return _some(self._cards.get(body["card_id"]), {}, "questions", "reason")
            case "PlanApproved":
                return _some(self._reviews.get(body["review_id"]), {}, "plan_sha256")
            case "AgentEntered":
                activation = self._activations.get(position)
                session = self._sessions.get(activation["agent_id"]) if activation is not None else None
                return {
                    **_some(activation, {"entered_by": "by"}, "owner_id", "entered_by", "binding"),
                    **_some(session, {}, "label", "mode"),
                }
            case "AgentBound" | "AgentUnbound":
                return _some(self._bindings.get(position), {}, "binding")
            case "TokenMade" | "TokenRevoked":
                return _some(self._tokens.get(body["token_id"]), {}, "label", "profile")
            case _:
                return {}


def _some(row: Mapping[str, Any] | None, renamed: Mapping[str, str], *names: str) -> dict[str, Any]:
    """The columns that hold something. Of what was forgotten there are none."""
    found: dict[str, Any] = {}
    for name in names if row is not None else ():
        value: Any = row[name] if row is not None else None
        if value is not None:
            is_json = name in ("questions", "answers")
            found[renamed.get(name, name)] = json.loads(value) if is_json else _plain(value)
    return found


def _plain(value: Any) -> Any:
    return load_text(value) if isinstance(value, bytes) else value


# --- forgetting ------------------------------------------------------------------------------------------------------

_before: BindParameter[float] = bindparam("before")


def forget(connection: Connection, sessions: Sessions, before: float) -> None:
    """Delete, within the transaction that is open, what was over before a moment, in seconds since the epoch.

    Unread messages, open cards and live activations stay, however old. So do the rows of agents, because no id is ever
    given to another; of one that finished the label goes. A call that was settled before the moment is not known again.
    """
    moment = {"before": before}
    for statement in _FORGET:
        connection.execute(statement, moment)
    blanked = [
        session
        for session in sessions.values()
        if session.finished and session.label and session.ended_at is not None and session.ended_at < before
    ]
    if blanked:
        statement = update(SESSIONS).where(SESSIONS.c.position == bindparam("at_position")).values(label="")
        connection.execute(statement, [{"at_position": session.position} for session in blanked])
    for session in blanked:
        session.label = ""


def _forgotten() -> Iterator[Any]:
    yield delete(EVENTS).where(EVENTS.c.at < _before)
    yield delete(MESSAGES).where(MESSAGES.c.settled_at < _before)
    old_card = and_(
        QUESTIONS.c.realm == HANDLES.c.realm, QUESTIONS.c.card_id == HANDLES.c.card_id, QUESTIONS.c.settled_at < _before
    )
    yield delete(HANDLES).where(exists().where(old_card))
    yield delete(QUESTIONS).where(QUESTIONS.c.settled_at < _before)
    yield delete(REVIEWS).where(REVIEWS.c.at < _before)
    old_activation = and_(ACTIVATIONS.c.position == BINDINGS.c.activation, ACTIVATIONS.c.ended_at < _before)
    yield delete(BINDINGS).where(exists().where(old_activation))
    yield delete(ACTIVATIONS).where(ACTIVATIONS.c.ended_at < _before)
    yield delete(TOKENS).where(TOKENS.c.revoked_at < _before)


_FORGET: Final = tuple(_forgotten())
