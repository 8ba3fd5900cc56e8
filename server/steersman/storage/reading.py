"""From rows to what the folds are rebuilt from. It costs as much as there are agents and as much as is live of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, and_, case, not_, null, or_, select, text

from steersman.journal import (
    AgentBound,
    AgentEntered,
    AgentUnbound,
    CardRestored,
    MailboxRestored,
    PlanModeRestored,
    ReceiptRestored,
    Restored,
    TokenRestored,
)
from steersman.messages import CallId, Message, Receipt
from steersman.questions.types import PlanReview
from steersman.storage.sessions import load_session
from steersman.storage.tables import ACTIVATIONS, BINDINGS, HANDLES, MESSAGES, QUESTIONS, SESSIONS, TOKENS
from steersman.storage.values import load_answers, load_questions, load_text
from steersman.storage.writing import Sessions

KEPT_RECEIPTS: Final = 1024
KEPT_CARDS: Final = 1024
KEPT_HANDLES: Final = 8
"""How many receipts of a sender, cards of an agent and handles of a card the folds remember, the newest."""

_CHUNK: Final = 500


def read_sessions(connection: Connection) -> Sessions:
    """Every agent there ever was, in order of first entry, as the writer works with it."""
    rows = connection.execute(select(SESSIONS).order_by(SESSIONS.c.position)).mappings()
    sessions = {(row["realm"], row["agent_id"]): load_session(row) for row in rows}
    live = select(ACTIVATIONS.c.realm, ACTIVATIONS.c.agent_id, ACTIVATIONS.c.position)
    for realm, agent_id, position in connection.execute(live.where(ACTIVATIONS.c.ended.is_(None))):
        sessions[realm, agent_id].activation = position
    return sessions


def read_newest_position(connection: Connection) -> int:
    """Of all events that were ever written, forgotten ones included."""
    return connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'events'")).scalar() or 0


def read_facts(connection: Connection, sessions: Sessions) -> Iterator[Restored]:
    """What the events came to, in the order in which the folds take it."""
    yield from (session.restored() for session in sessions.values())
    yield from _entries(connection, sessions)
    yield from _mailboxes(connection, sessions)
    for session in sessions.values():
        if session.plan_active or session.plan_queued is not None:
            yield PlanModeRestored(session.realm, session.agent_id, session.plan_active, session.plan_queued)
    yield from _receipts(connection)
    yield from _cards(connection)
    yield from _tokens(connection)


def _entries(connection: Connection, sessions: Sessions) -> Iterator[AgentEntered | AgentBound | AgentUnbound]:
    """Of live activations: as they came, so that what lives on one binding has its order too."""
    live = ACTIVATIONS.c.ended.is_(None)
    found: dict[int, AgentEntered | AgentBound | AgentUnbound] = {}
    for row in connection.execute(select(ACTIVATIONS).where(live)).mappings():
        session = sessions[row["realm"], row["agent_id"]]
        found[row["position"]] = AgentEntered(
            session.realm,
            session.agent_id,
            row["owner_id"],
            row["entered_by"],
            row["binding"],
            row["credential_hash"],
            session.header,
            session.label,
            session.mode,
            session.key_hash,
        )
    joined = select(BINDINGS, ACTIVATIONS.c.realm, ACTIVATIONS.c.agent_id).join(
        ACTIVATIONS, and_(BINDINGS.c.activation == ACTIVATIONS.c.position, live)
    )
    for row in connection.execute(joined).mappings():
        kind = AgentBound if row["bound"] else AgentUnbound
        found[row["position"]] = kind(row["realm"], row["agent_id"], row["binding"])
    yield from (found[position] for position in sorted(found))


def _mailboxes(connection: Connection, sessions: Sessions) -> Iterator[MailboxRestored]:
    unread = select(MESSAGES).where(MESSAGES.c.settled_at.is_(None)).order_by(MESSAGES.c.position)
    handed: defaultdict[tuple[str, str], list[tuple[int, Message]]] = defaultdict(list)
    waiting: defaultdict[tuple[str, str, str], list[Message]] = defaultdict(list)
    for row in connection.execute(unread).mappings():
        message = Message(row["id"], load_text(row["text"]), row["kind"], row["sender"], row["accepted_at"])
        if row["seq"] is not None:
            handed[row["realm"], row["agent_id"]].append((row["seq"], message))
        else:
            waiting[row["realm"], row["agent_id"], row["queue"]].append(message)
    for of, session in sessions.items():
        if session.received or session.turn:
            yield MailboxRestored(
                *of,
                session.turn,
                session.open,
                session.interrupted,
                session.worked,
                session.handed_out,
                session.confirmed,
                session.received,
                tuple(sorted(handed[of], key=lambda entry: entry[0])),
                tuple(waiting[(*of, "next_step")]),
                tuple(waiting[(*of, "next_turn")]),
            )


def _receipts(connection: Connection) -> Iterator[ReceiptRestored]:
    """The newest of each sender that may call again."""
    one = MESSAGES.alias()
    newest = (
        select(one.c.position)
        .where(one.c.realm == SESSIONS.c.realm, one.c.sender == SESSIONS.c.agent_id, one.c.call_key.is_not(None))
        .order_by(one.c.position.desc())
        .limit(KEPT_RECEIPTS)
        .correlate(SESSIONS)
    )
    columns = (
        MESSAGES.c.realm,
        MESSAGES.c.sender,
        MESSAGES.c.call_key,
        MESSAGES.c.call_digest,
        MESSAGES.c.route,
        MESSAGES.c.id,
        MESSAGES.c.queued_ahead,
    )
    kept = select(*columns).join_from(SESSIONS, MESSAGES, MESSAGES.c.position.in_(newest))
    rows = connection.execute(kept.where(not_(SESSIONS.c.finished)).order_by(MESSAGES.c.position))
    for realm, sender, key, digest, route, message_id, ahead in rows:
        yield ReceiptRestored(realm, sender, CallId(load_text(key), digest), Receipt(route, message_id, ahead))


def _cards(connection: Connection) -> Iterator[CardRestored]:
    """The newest of each agent. Of what was settled only the outcome is of use, and that while its asker may call."""
    one = QUESTIONS.alias()
    newest = (
        select(one.c.position)
        .where(
            one.c.realm == SESSIONS.c.realm,
            one.c.agent_id == SESSIONS.c.agent_id,
            one.c.recallable.is_not(None),
        )
        .order_by(one.c.position.desc())
        .limit(KEPT_CARDS)
        .correlate(SESSIONS)
    )
    is_open = QUESTIONS.c.settled_at.is_(None)
    plain = [column for column in QUESTIONS.c if column.name not in ("questions", "plan")]
    asked = (
        case((is_open, QUESTIONS.c.questions), else_=null()).label("questions"),
        case((is_open, QUESTIONS.c.plan), else_=null()).label("plan"),
    )
    kept = select(*plain, *asked).join_from(SESSIONS, QUESTIONS, QUESTIONS.c.position.in_(newest))
    rows = connection.execute(
        kept.where(or_(is_open, not_(SESSIONS.c.finished))).order_by(QUESTIONS.c.position)
    ).mappings()
    for chunk in rows.partitions(_CHUNK):
        handles = _handles(connection, chunk)
        for row in chunk:
            yield _card(row, handles[row["realm"], row["card_id"]])


def _handles(connection: Connection, cards: Sequence[RowMapping]) -> defaultdict[tuple[str, str], list[str]]:
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    suspended = [row["card_id"] for row in cards if row["suspended_by"] is not None]
    if suspended:
        query = select(HANDLES).where(
            HANDLES.c.realm.in_({row["realm"] for row in cards}), HANDLES.c.card_id.in_(suspended)
        )
        for row in connection.execute(query.order_by(HANDLES.c.position)).mappings():
            found[row["realm"], row["card_id"]].append(row["hash"])
    return found


def _card(row: RowMapping, handles: Sequence[str]) -> CardRestored:
    plan: Any = row["plan"]
    return CardRestored(
        row["realm"],
        row["agent_id"],
        row["card_id"],
        load_questions(row["questions"]) if row["questions"] is not None else (),
        PlanReview(load_text(plan), load_text(row["approve"])) if plan is not None else None,
        row["call_digest"],
        load_text(row["call_key"]) if row["call_key"] is not None else None,
        row["asked_at"],
        row["suspended_by"],
        tuple(handles[-KEPT_HANDLES:]),
        row["answer_digest"],
        load_answers(row["answers"]) if row["answers"] is not None else None,
        row["via"],
        row["code"],
        load_text(row["reason"]) if row["reason"] is not None else None,
        row["orphaned"],
    )


def _tokens(connection: Connection) -> Iterator[TokenRestored]:
    good = select(TOKENS).where(TOKENS.c.revoked_at.is_(None)).order_by(TOKENS.c.position)
    for row in connection.execute(good).mappings():
        yield TokenRestored(
            row["realm"],
            row["token_id"],
            load_text(row["label"]),
            row["profile"],
            row["created_at"],
            row["token_hash"],
        )
