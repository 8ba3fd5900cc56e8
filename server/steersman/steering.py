"""Steering: a new instruction into a subagent that is working."""

from __future__ import annotations

from typing import Literal, NoReturn

from steersman.errors import SubagentError
from steersman.registry import Activation, AgentRegistry


class Steering:
    """Reaches direct subagents of a live caller. This version accepts no message yet, and says so."""

    def __init__(self, registry: AgentRegistry) -> None:
        self._registry = registry

    async def steer(
        self, caller: Activation, subagent_id: str, message: str, mode: Literal["step", "turn"]
    ) -> NoReturn:
        """Refuse the message.

        Raises:
            SubagentError: `CALLER_NOT_LIVE`, else `UNKNOWN_SUBAGENT` with the caller's own direct subagents, whatever
                was asked.
        """
        if not self._registry.is_live(caller):
            raise SubagentError("CALLER_NOT_LIVE")
        raise SubagentError("UNKNOWN_SUBAGENT", subagents=self._registry.direct_subagents(caller))
