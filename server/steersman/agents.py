"""What an agent is, as plain values: the journal keeps them, and the registry works with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Mode = Literal["continuable", "one-shot"]
Outcome = Literal["completed", "failed", "aborted"]
EnteredBy = Literal["host", "call", "profile"]
"""A host by name, a call that came without identity, or a host profile."""
EndedBy = Literal["closed", "lapsed"]
"""Its connection was closed, or its lease ran out."""

PIPE_KEY: Final = "pipe:"
TOKEN_KEY: Final = "token:"
"""What the key of a binding begins with: only these two outlive the process."""


@dataclass(frozen=True)
class SessionHeader:
    """What an agent's first entry settled for good."""

    parent_session: str
    """The owner's id at first entry; empty if there was none."""
    origin: Literal["root", "subagent"]
    delegation_depth: int
