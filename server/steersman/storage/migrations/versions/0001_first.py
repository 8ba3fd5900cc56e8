"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "activation_bindings",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("activation", sa.Integer(), nullable=False),
        sa.Column("binding", sa.String(), nullable=False),
        sa.Column("bound", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("bindings_by_activation", "activation_bindings", ["activation"], unique=False)
    op.create_table(
        "activations",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("owner_id", sa.String(), nullable=True),
        sa.Column("entered_by", sa.String(), nullable=False),
        sa.Column("binding", sa.String(), nullable=False),
        sa.Column("credential_hash", sa.String(), nullable=True),
        sa.Column("ended", sa.String(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index(
        "live_activations", "activations", ["realm", "agent_id"], unique=True, sqlite_where=sa.text("ended IS NULL")
    )
    op.create_table(
        "events",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "handles",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("card_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("handles_by_card", "handles", ["realm", "card_id"], unique=False)
    op.create_index("handles_by_hash", "handles", ["hash"], unique=True)
    op.create_table(
        "messages",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=True),
        sa.Column("settled_at", sa.Float(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("sender", sa.String(), nullable=True),
        sa.Column("accepted_at", sa.Float(), nullable=False),
        sa.Column("route", sa.String(), nullable=True),
        sa.Column("queued_ahead", sa.Integer(), nullable=True),
        sa.Column("call_key", sa.String(), nullable=True),
        sa.Column("call_digest", sa.String(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("messages_by_id", "messages", ["id"], unique=True)
    op.create_index(
        "receipts",
        "messages",
        ["realm", "sender", "position"],
        unique=False,
        sqlite_where=sa.text("call_key IS NOT NULL"),
    )
    op.create_index(
        "unread_messages", "messages", ["realm", "agent_id"], unique=False, sqlite_where=sa.text("settled_at IS NULL")
    )
    op.create_table(
        "questions",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("card_id", sa.String(), nullable=False),
        sa.Column("recallable", sa.Integer(), nullable=True),
        sa.Column("asked_at", sa.Float(), nullable=False),
        sa.Column("settled_at", sa.Float(), nullable=True),
        sa.Column("call_digest", sa.String(), nullable=False),
        sa.Column("call_key", sa.String(), nullable=True),
        sa.Column("suspended_by", sa.String(), nullable=True),
        sa.Column("orphaned", sa.Boolean(), nullable=False),
        sa.Column("via", sa.String(), nullable=True),
        sa.Column("code", sa.String(), nullable=True),
        sa.Column("answer_digest", sa.String(), nullable=True),
        sa.Column("late_message", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("answers", sa.Text(), nullable=True),
        sa.Column("approve", sa.Text(), nullable=True),
        sa.Column("questions", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("questions_by_card", "questions", ["realm", "card_id"], unique=True)
    op.create_index(
        "recallable_questions",
        "questions",
        ["realm", "agent_id", "position"],
        unique=False,
        sqlite_where=sa.text("recallable IS NOT NULL"),
    )
    op.create_table(
        "reviews",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("review_id", sa.String(), nullable=False),
        sa.Column("plan_sha256", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_table(
        "sessions",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("parent_session", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("delegation_depth", sa.Integer(), nullable=False),
        sa.Column("key_hash", sa.String(), nullable=True),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("interrupted", sa.Boolean(), nullable=False),
        sa.Column("worked", sa.Boolean(), nullable=False),
        sa.Column("handed_out", sa.Integer(), nullable=False),
        sa.Column("confirmed", sa.Integer(), nullable=False),
        sa.Column("received", sa.Integer(), nullable=False),
        sa.Column("plan_active", sa.Boolean(), nullable=False),
        sa.Column("plan_queued", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("sessions_by_agent", "sessions", ["realm", "agent_id"], unique=True)
    op.create_table(
        "tokens",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("realm", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("profile", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("tokens_by_id", "tokens", ["realm", "token_id"], unique=True)
