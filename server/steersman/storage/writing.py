"""From events to rows: one batch of events is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Executable, bindparam, case, insert, null, or_, update
from sqlalchemy.dialects.sqlite import insert as upsert

from steersman.journal import (
    AgentBound,
    AgentEnded,
    AgentEntered,
    AgentExited,
    AgentUnbound,
    Event,
    MessageAccepted,
    MessageMissed,
    MessagesConfirmed,
    MessagesHandedOut,
    NoticeLeft,
    PlanApproved,
    PlanModeQueued,
    PlanModeSet,
    QuestionAnswered,
    QuestionAnsweredLate,
    QuestionAsked,
    QuestionClosed,
    QuestionOrphaned,
    QuestionSuspended,
    TokenMade,
    TokenRevoked,
    TurnClosed,
    TurnInterrupted,
    TurnOpened,
)
from steersman.messages import CallId, Message
from steersman.storage.sessions import Session, first_entry
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
from steersman.storage.values import store_answers, store_json, store_questions, store_text

WITHDRAWN: Final = frozenset({"ASK_ABORTED", "NO_PROVIDER"})
"""What a card that was withdrawn is closed with: the same call asks anew."""

Sessions = dict[tuple[str, str], Session]
Timed = tuple[Event, float]
"""An event, and its moment in seconds since the epoch."""

_Row = dict[str, Any]

_INSERT_EVENT: Final = insert(EVENTS)
_INSERT_SESSION: Final = insert(SESSIONS)
_UPDATE_SESSION: Final = update(SESSIONS).where(SESSIONS.c.position == bindparam("at_position"))
_INSERT_ACTIVATION: Final = insert(ACTIVATIONS)
_END_ACTIVATION: Final = update(ACTIVATIONS).where(ACTIVATIONS.c.position == bindparam("at_position"))
_INSERT_BINDING: Final = insert(BINDINGS)

_INSERT_MESSAGE: Final = insert(MESSAGES)
_by_id = update(MESSAGES).where(MESSAGES.c.id == bindparam("message_id"))
_HAND_OUT: Final = _by_id.values(state="handed_out", seq=bindparam("new_seq"))
_MISS: Final = _by_id.values(state="missed", settled_at=bindparam("at"))
_CONFIRM: Final = (
    update(MESSAGES)
    .where(
        MESSAGES.c.realm == bindparam("of_realm"),
        MESSAGES.c.agent_id == bindparam("of_agent"),
        MESSAGES.c.settled_at.is_(None),
        MESSAGES.c.seq <= bindparam("up_to"),
    )
    .values(state="confirmed", settled_at=bindparam("at"))
)

_ask = upsert(QUESTIONS)
_ASK: Final = _ask.on_conflict_do_update(
    index_elements=[QUESTIONS.c.realm, QUESTIONS.c.card_id], set_={"orphaned": False}
)
_card = update(QUESTIONS).where(QUESTIONS.c.realm == bindparam("of_realm"), QUESTIONS.c.card_id == bindparam("of_card"))
_comes_again = case((or_(QUESTIONS.c.call_key.is_not(None), QUESTIONS.c.suspended_by.is_not(None)), 1), else_=null())
_SUSPEND: Final = _card.values(suspended_by=bindparam("provider"))
_ANSWER: Final = _card.values(
    answers=bindparam("given"),
    via=bindparam("given_via"),
    answer_digest=bindparam("digest"),
    settled_at=bindparam("at"),
    recallable=_comes_again,
)
_CLOSE: Final = _card.where(QUESTIONS.c.settled_at.is_(None)).values(
    code=bindparam("with_code"),
    reason=bindparam("with_reason"),
    answer_digest=bindparam("digest"),
    settled_at=bindparam("at"),
    # Nobody waits for one whose server died: what closes it is no outcome of its call.
    recallable=case((or_(bindparam("withdrawn"), QUESTIONS.c.orphaned), null()), else_=_comes_again),
)
_ORPHAN: Final = _card.values(orphaned=True)
_ANSWER_LATE: Final = _card.values(
    answers=bindparam("given"), late_message=bindparam("message_id"), settled_at=bindparam("at"), recallable=null()
)
_ADD_HANDLE: Final = upsert(HANDLES).on_conflict_do_nothing(index_elements=[HANDLES.c.hash])
_INSERT_REVIEW: Final = insert(REVIEWS)
_INSERT_TOKEN: Final = insert(TOKENS)
_REVOKE: Final = (
    update(TOKENS)
    .where(TOKENS.c.realm == bindparam("of_realm"), TOKENS.c.token_id == bindparam("of_token"))
    .values(revoked_at=bindparam("at"))
)

_LANES: Final = ("activations", "bindings", "messages", "questions", "handles", "reviews", "tokens")


class Batch:
    """Gathers what a run of events changes, and writes it.

    Rows of different tables do not depend on each other, so each table has a lane of its own, in which order is kept
    and neighbours with one statement become one call of the database.
    """

    def __init__(self, sessions: Sessions, position: int) -> None:
        """`sessions` and the newest `position` are as of the batch before; both are moved on."""
        self.position = position
        self._sessions = sessions
        self._events: list[_Row] = []
        self._new: dict[Session, None] = {}
        self._changed: dict[Session, None] = {}
        self._lanes: dict[str, list[tuple[Executable, list[_Row]]]] = {name: [] for name in _LANES}

    def write(self, connection: Connection) -> None:
        connection.execute(_INSERT_EVENT, self._events)
        if self._new:
            connection.execute(_INSERT_SESSION, [session.row() for session in self._new])
        changed = [session for session in self._changed if session not in self._new]
        if changed:
            rows = [session.row() for session in changed]
            for row in rows:
                row["at_position"] = row.pop("position")
            connection.execute(_UPDATE_SESSION, rows)
        for lane in self._lanes.values():
            for statement, rows in lane:
                connection.execute(statement, rows)

    def take(self, events: Iterable[Timed]) -> None:
        for event, at in events:
            self.position += 1
            body = self._take(event, at)
            self._events.append(
                {
                    "position": self.position,
                    "realm": event.realm,
                    "agent_id": getattr(event, "agent_id", ""),
                    "kind": type(event).__name__,
                    "at": at,
                    "body": store_json(body),
                }
            )

    def _put(self, lane: str, statement: Executable, row: _Row) -> None:
        run = self._lanes[lane]
        if run and run[-1][0] is statement:
            run[-1][1].append(row)
        else:
            run.append((statement, [row]))

    def _session(self, event: Event, at: float) -> Session:
        session = self._sessions[event.realm, getattr(event, "agent_id", "")]
        if session.apply(event, at):
            self._changed[session] = None
        return session

    def _take(self, event: Event, at: float) -> _Row:
        """Note the rows that an event makes and changes; what stands in none of them is returned."""
        match event:
            case AgentEntered() | AgentBound() | AgentUnbound() | AgentExited() | AgentEnded():
                return self._take_activation(event, at)
            case MessageAccepted() | NoticeLeft() | MessagesHandedOut() | MessagesConfirmed() | MessageMissed():
                return self._take_message(event, at)
            case (
                QuestionAsked()
                | QuestionSuspended()
                | QuestionAnswered()
                | QuestionClosed()
                | QuestionOrphaned()
                | QuestionAnsweredLate()
            ):
                return self._take_question(event, at)
            case PlanModeSet() | PlanModeQueued():
                self._session(event, at)
                return {"active": event.active}
            case TurnOpened() | TurnInterrupted() | TurnClosed():
                self._session(event, at)
                return {"turn": event.turn}
            case PlanApproved():
                review = {"review_id": event.review_id, "plan_sha256": event.plan_sha256, "at": at}
                self._put("reviews", _INSERT_REVIEW, {**self._place(event), **review})
                return {"review_id": event.review_id}
            case TokenMade():
                self._put(
                    "tokens",
                    _INSERT_TOKEN,
                    {
                        "position": self.position,
                        "realm": event.realm,
                        "token_id": event.token_id,
                        "label": store_text(event.label),
                        "profile": event.profile,
                        "created_at": event.created_at,
                        "token_hash": event.token_hash,
                    },
                )
                return {"token_id": event.token_id}
            case TokenRevoked():
                self._put("tokens", _REVOKE, {"of_realm": event.realm, "of_token": event.token_id, "at": at})
                return {"token_id": event.token_id}

    def _place(self, event: Any) -> _Row:
        return {"position": self.position, "realm": event.realm, "agent_id": event.agent_id}

    # --- agents ------------------------------------------------------------------------------------------------------

    def _take_activation(
        self, event: AgentEntered | AgentBound | AgentUnbound | AgentExited | AgentEnded, at: float
    ) -> _Row:
        if isinstance(event, AgentEntered) and (event.realm, event.agent_id) not in self._sessions:
            session = self._sessions[event.realm, event.agent_id] = first_entry(event, self.position)
            self._new[session] = None
        session = self._session(event, at)
        match event:
            case AgentEntered():
                self._end(session, "superseded", at)
                session.activation = self.position
                self._put(
                    "activations",
                    _INSERT_ACTIVATION,
                    {
                        **self._place(event),
                        "owner_id": event.owner_id,
                        "entered_by": event.by,
                        "binding": event.binding,
                        "credential_hash": event.credential_hash,
                    },
                )
                return {}
            case AgentBound() | AgentUnbound():
                if session.activation is not None:
                    row = {"position": self.position, "activation": session.activation, "binding": event.binding}
                    self._put("bindings", _INSERT_BINDING, {**row, "bound": isinstance(event, AgentBound)})
                return {}
            case AgentExited():
                self._end(session, "exited", at)
                return {"outcome": event.outcome, "final": event.final}
            case AgentEnded():
                self._end(session, event.by, at)
                return {"by": event.by}

    def _end(self, session: Session, ended: str, at: float) -> None:
        if session.activation is not None:
            row = {"at_position": session.activation, "ended": ended, "ended_at": at}
            self._put("activations", _END_ACTIVATION, row)
            session.activation = None

    # --- messages ----------------------------------------------------------------------------------------------------

    def _take_message(
        self,
        event: MessageAccepted | NoticeLeft | MessagesHandedOut | MessagesConfirmed | MessageMissed,
        at: float,
    ) -> _Row:
        session = self._session(event, at)
        match event:
            case MessageAccepted():
                row = self._message(event, event.message, event.queue, event.call)
                row |= {"route": event.receipt.route, "queued_ahead": event.receipt.queued_ahead}
                self._put("messages", _INSERT_MESSAGE, row)
                return {"message_id": event.message.id}
            case NoticeLeft():
                row = self._message(event, event.message, "next_step", None)
                self._put("messages", _INSERT_MESSAGE, {**row, "route": None, "queued_ahead": None})
                return {"message_id": event.message.id}
            case MessagesHandedOut():
                first = session.handed_out - len(event.message_ids) + 1
                for seq, message_id in enumerate(event.message_ids, first):
                    self._put("messages", _HAND_OUT, {"message_id": message_id, "new_seq": seq})
                return {"message_ids": event.message_ids}
            case MessagesConfirmed():
                row = {"of_realm": event.realm, "of_agent": event.agent_id, "up_to": event.seq, "at": at}
                self._put("messages", _CONFIRM, row)
                return {"seq": event.seq}
            case MessageMissed():
                self._put("messages", _MISS, {"message_id": event.message_id, "at": at})
                return {"message_id": event.message_id}

    def _message(self, event: Event, message: Message, queue: str, call: CallId | None) -> _Row:
        return {
            **self._place(event),
            "id": message.id,
            "queue": queue,
            "state": "waiting",
            "kind": message.kind,
            "sender": message.agent_id,
            "accepted_at": message.accepted_at,
            "call_key": store_text(call.key) if call is not None else None,
            "call_digest": call.digest if call is not None else None,
            "text": store_text(message.text),
        }

    # --- questions ---------------------------------------------------------------------------------------------------

    def _take_question(
        self,
        event: QuestionAsked
        | QuestionSuspended
        | QuestionAnswered
        | QuestionClosed
        | QuestionOrphaned
        | QuestionAnsweredLate,
        at: float,
    ) -> _Row:
        card: _Row = {"of_realm": event.realm, "of_card": event.card_id}
        match event:
            case QuestionAsked():
                self._put("questions", _ASK, {**self._place(event), **_asked(event, at)})
            case QuestionSuspended():
                self._put("questions", _SUSPEND, {**card, "provider": event.provider})
                handle = {"position": self.position, "realm": event.realm, "card_id": event.card_id}
                self._put("handles", _ADD_HANDLE, {**handle, "hash": event.handle_hash})
                return {"card_id": event.card_id, "provider": event.provider}
            case QuestionAnswered():
                given: _Row = {"given": store_answers(event.answers), "given_via": event.via}
                self._put("questions", _ANSWER, {**card, **given, "digest": event.answer_digest, "at": at})
            case QuestionClosed():
                reason = store_text(event.reason) if event.reason is not None else None
                closed: _Row = {"with_code": event.code, "with_reason": reason, "digest": event.answer_digest}
                self._put("questions", _CLOSE, {**card, **closed, "withdrawn": event.code in WITHDRAWN, "at": at})
                return {"card_id": event.card_id, "code": event.code}
            case QuestionOrphaned():
                self._put("questions", _ORPHAN, card)
            case QuestionAnsweredLate():
                late: _Row = {"given": store_answers(event.answers), "message_id": event.message_id, "at": at}
                self._put("questions", _ANSWER_LATE, {**card, **late})
                return {"card_id": event.card_id, "message_id": event.message_id}
        return {"card_id": event.card_id}


def _asked(event: QuestionAsked, at: float) -> _Row:
    return {
        "card_id": event.card_id,
        "recallable": 1,
        "asked_at": at,
        "call_digest": event.call_digest,
        "call_key": store_text(event.call_key) if event.call_key is not None else None,
        "orphaned": False,
        "approve": store_text(event.intent.approve) if event.intent is not None else None,
        "questions": store_questions(event.questions),
        "plan": store_text(event.intent.plan) if event.intent is not None else None,
    }


def write_batch(connection: Connection, sessions: Sessions, position: int, events: Sequence[Timed]) -> int:
    """Write events within the transaction that is open. Returns the newest position."""
    batch = Batch(sessions, position)
    batch.take(events)
    batch.write(connection)
    return batch.position
