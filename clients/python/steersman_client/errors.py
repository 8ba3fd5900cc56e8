"""What can go wrong with a host method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def not_live() -> HostMethodError:
    """The refusal of an agent that its host has lost."""
    message = "the agent was ended, or somebody else has entered it since."
    return HostMethodError({"name": "HostError", "code": "CALLER_NOT_LIVE", "message": message})
