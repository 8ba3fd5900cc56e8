"""The Codex host profile: which thread calls, and which thread owns it, from what Codex puts into `_meta`.

Measured with Codex 0.171.0: `threadId` is the calling thread, `sessionId` the root thread, and
`x-codex-turn-metadata` carries `thread_source` and, for a subagent, `parent_thread_id`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from steersman.json_values import is_object
from steersman.text import visible

NAMESPACE: Final = "codex:"
_MAX_ID: Final = 128
_TURN_METADATA: Final = "x-codex-turn-metadata"


@dataclass(frozen=True)
class CodexThread:
    """A calling thread as agent ids, in the profile's own namespace."""

    agent_id: str
    owner_id: str | None


def identify(meta: Mapping[str, Any]) -> CodexThread | None:
    """Read the calling thread.

    It is owned if its thread is not its session, or is marked a subagent, or names a parent; the owner is the named
    parent, else the session.

    Returns:
        None for what cannot be read: such a caller is dead, never a root.
    """
    thread, session = meta.get("threadId"), meta.get("sessionId")
    turn = _turn_metadata(meta)
    if turn is None or not _is_id(thread) or not _is_id(session):
        return None
    parent, source = turn.get("parent_thread_id"), turn.get("thread_source")
    if parent is not None and not _is_id(parent):
        return None
    if source is not None and not isinstance(source, str):
        return None
    owned = thread != session or (source or "").lower() == "subagent" or parent is not None
    owner = (parent if parent is not None else session) if owned else None
    if owner == thread:
        return None
    return CodexThread(f"{NAMESPACE}{thread}", f"{NAMESPACE}{owner}" if owner is not None else None)


def _turn_metadata(meta: Mapping[str, Any]) -> Mapping[str, object] | None:
    turn: object = meta.get(_TURN_METADATA, {})
    if isinstance(turn, str):
        try:
            turn = json.loads(turn)
        except (ValueError, RecursionError):
            return None
    return turn if is_object(turn) else None


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID and visible(value) == value
