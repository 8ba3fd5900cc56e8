"""What can go wrong with a host method."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast


class HostMethodError(Exception):
    """A host method was refused.

    Attributes:
        code: the stable code, such as `CALLER_NOT_LIVE`.
        data: the whole error object, `{name, code, message, ...}`.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(f"{data['code']}: {data['message']}")
        self.code: str = data["code"]
        self.data = data


class ConnectError(Exception):
    """No connection to a server came about. The message says to what, and why."""

    def __init__(self, target: str, reason: Exception, statuses: Sequence[int] = ()) -> None:
        leaf = reason
        while isinstance(leaf, ExceptionGroup):
            leaf = cast("ExceptionGroup[Exception]", leaf).exceptions[0]
        super().__init__(f"Cannot connect to {target}: {type(leaf).__name__}: {leaf}{_hint(statuses)}")


def _hint(statuses: Sequence[int]) -> str:
    """What the SDK does not say of a server that answered and refused."""
    if 401 in statuses:
        return " (HTTP 401: the server did not take the token)"
    return f" (HTTP {statuses[-1]})" if statuses else ""


def not_live() -> HostMethodError:
    """The refusal of an agent that its host has lost."""
    message = "the agent was ended, or somebody else has entered it since."
    return HostMethodError({"name": "HostError", "code": "CALLER_NOT_LIVE", "message": message})


def check_text(params: Mapping[str, Any]) -> None:
    """Refuse what cannot be spelled as UTF-8: the transport would break on it, and everything else with it.

    Raises:
        HostMethodError: `INVALID_ARGUMENTS`.
    """
    try:
        json.dumps(params, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        reason = "found half of a surrogate pair, which is no character; allowed is valid Unicode text."
        message = f"The arguments do not fit: {reason}"
        data = {"name": "HostError", "code": "INVALID_ARGUMENTS", "message": message, "reason": reason}
        raise HostMethodError(data) from None
