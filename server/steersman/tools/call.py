"""One tool call, free of MCP: who calls, and what came beside the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steersman.questions.requests import AskRequest, Channel, Resumption
from steersman.registry import Activation
from steersman.settings import HostSettings


@dataclass(frozen=True)
class ToolCall:
    """What every tool is given beside its own arguments."""

    caller: Activation
    digest: str
    """Of tool name and arguments."""
    key: str | None
    """The host's own id of the call, if it sent one; a retry carries the same one."""
    channel: Channel
    resumption: Resumption | None
    host: HostSettings
    """What holds for the host that it came from."""

    def ask_request(self) -> AskRequest:
        """The question request that this call makes, with nothing asked yet."""
        return AskRequest(
            questions=(),
            agent=self.caller,
            call_digest=self.digest,
            call_key=self.key,
            channel=self.channel,
            resumption=self.resumption,
            host=self.host,
        )


Structured = Mapping[str, Any]
"""A successful result, keys in the frozen order."""
