"""The tables of the journal.

`events` is what happened, append-only; the others are what it came to, changed in the transaction of the event that
changes them. Each text stands in one place: that of a message in `messages`, of a plan in `questions`. A `position` is
that of the event that made the row, so it orders rows of all tables. What the folds need is found by the partial
indexes alone, however much history there is.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text, text

HEAD: Final = "0001"
"""The schema that this code reads and writes: the newest of `migrations/versions`."""

METADATA: Final = MetaData()


def _agent() -> tuple[Column[str], Column[str]]:
    return Column("realm", String, nullable=False), Column("agent_id", String, nullable=False)


EVENTS: Final = Table(
    "events",
    METADATA,
    # Also after old events were forgotten no position is given again.
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("kind", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("label", Text, nullable=False),
    Column("mode", String, nullable=False),
    Column("parent_session", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("delegation_depth", Integer, nullable=False),
    Column("key_hash", String),
    Column("finished", Boolean, nullable=False),
    Column("ended_at", Float),
    Column("turn", Integer, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("interrupted", Boolean, nullable=False),
    Column("worked", Boolean, nullable=False),
    Column("handed_out", Integer, nullable=False),
    Column("confirmed", Integer, nullable=False),
    Column("received", Integer, nullable=False),
    Column("plan_active", Boolean, nullable=False),
    Column("plan_queued", Boolean),
    Index("sessions_by_agent", "realm", "agent_id", unique=True),
)

ACTIVATIONS: Final = Table(
    "activations",
    METADATA,
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("owner_id", String),
    Column("entered_by", String, nullable=False),
    Column("binding", String, nullable=False),
    Column("credential_hash", String),
    Column("ended", String),  # exited, closed, lapsed or superseded
    Column("ended_at", Float),
    Index("live_activations", "realm", "agent_id", unique=True, sqlite_where=text("ended IS NULL")),
)

BINDINGS: Final = Table(
    "activation_bindings",
    METADATA,
    Column("position", Integer, primary_key=True),
    Column("activation", Integer, nullable=False),
    Column("binding", String, nullable=False),
    Column("bound", Boolean, nullable=False),  # or unbound again
    Index("bindings_by_activation", "activation"),
)

MESSAGES: Final = Table(
    "messages",
    METADATA,
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("id", String, nullable=False),
    Column("queue", String, nullable=False),
    Column("state", String, nullable=False),  # waiting, handed_out, confirmed or missed
    Column("seq", Integer),
    Column("settled_at", Float),
    Column("kind", String, nullable=False),
    Column("sender", String),
    Column("accepted_at", Float, nullable=False),
    Column("route", String),
    Column("queued_ahead", Integer),
    Column("call_key", String),
    Column("call_digest", String),
    # Last, so that reading a receipt passes over no long text.
    Column("text", Text, nullable=False),
    Index("messages_by_id", "id", unique=True),
    Index("unread_messages", "realm", "agent_id", sqlite_where=text("settled_at IS NULL")),
    Index("receipts", "realm", "sender", "position", sqlite_where=text("call_key IS NOT NULL")),
)

QUESTIONS: Final = Table(
    "questions",
    METADATA,
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("card_id", String, nullable=False),
    Column("recallable", Integer),  # 1 while it is open or its call may come again, else null
    Column("asked_at", Float, nullable=False),
    Column("settled_at", Float),
    Column("call_digest", String, nullable=False),
    Column("call_key", String),
    Column("suspended_by", String),
    Column("orphaned", Boolean, nullable=False),
    Column("via", String),
    Column("code", String),
    Column("answer_digest", String),
    Column("late_message", String),
    Column("reason", Text),
    Column("answers", Text),
    Column("approve", Text),
    Column("questions", Text, nullable=False),
    Column("plan", Text),
    Index("questions_by_card", "realm", "card_id", unique=True),
    Index("recallable_questions", "realm", "agent_id", "position", sqlite_where=text("recallable IS NOT NULL")),
)

HANDLES: Final = Table(
    "handles",
    METADATA,
    Column("position", Integer, primary_key=True),
    Column("hash", String, nullable=False),
    Column("realm", String, nullable=False),
    Column("card_id", String, nullable=False),
    Index("handles_by_hash", "hash", unique=True),
    Index("handles_by_card", "realm", "card_id"),
)

REVIEWS: Final = Table(
    "reviews",
    METADATA,
    Column("position", Integer, primary_key=True),
    *_agent(),
    Column("review_id", String, nullable=False),
    Column("plan_sha256", String, nullable=False),
    Column("at", Float, nullable=False),
)

TOKENS: Final = Table(
    "tokens",
    METADATA,
    Column("position", Integer, primary_key=True),
    Column("realm", String, nullable=False),
    Column("token_id", String, nullable=False),
    Column("label", Text, nullable=False),
    Column("profile", String),
    Column("created_at", Float, nullable=False),
    Column("token_hash", String, nullable=False),
    Column("revoked_at", Float),
    Index("tokens_by_id", "realm", "token_id", unique=True),
)
