"""The errors a caller can be given: their codes and the families they belong to.

The texts stand in the contract (`errors.json`), not here: an error carries its code and the values of the few
variables a text may have, and `steersman.contract.error_object` puts both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "INVALID_ARGUMENTS",
    "LIMIT_EXCEEDED",
    "INTERNAL_ERROR",
    "SERVER_UNAVAILABLE",
    "CALLER_NOT_LIVE",
    "DELEGATED_CALLER",
    "EMPTY_QUESTIONS",
    "BAD_INTENT",
    "NO_PROVIDER",
    "ASK_ABORTED",
    "ASK_CANCELLED",
    "ASK_DECLINED",
    "ASK_TIMED_OUT",
    "ANSWER_INVALID",
    "NOT_IN_PLAN_MODE",
    "INVALID_PLAN",
    "KEEP_PLANNING",
    "UNKNOWN_SUBAGENT",
    "SUBAGENT_FINISHED",
    "SUBAGENT_CLOSING",
    "AGENT_LIVE",
    "RESUME_KEY_REQUIRED",
    "AGENT_FINISHED",
]


@dataclass(frozen=True)
class SubagentLine:
    """One of a caller's direct subagents, as an error lists it."""

    id: str
    label: str
    status: str

    def as_json(self) -> dict[str, str]:
        return {"id": self.id, "label": self.label, "status": self.status}


class SteersmanError(Exception):
    """A refusal with a stable code. The class name is the `name` on the wire.

    Args:
        code: which refusal.
        reason: what was found and what is allowed, or the human's reason. Whole sentences, ending in a full stop.
        feedback: the human's words about a plan, unchanged.
        subagents: the caller's own direct subagents.
        reference: what stands in the log beside a fault of ours.
    """

    def __init__(
        self,
        code: Code,
        *,
        reason: str | None = None,
        feedback: str | None = None,
        subagents: Sequence[SubagentLine] | None = None,
        reference: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code: Code = code
        self.reason = reason
        self.feedback = feedback
        self.subagents = subagents
        self.reference = reference

    @property
    def name(self) -> str:
        return type(self).__name__

    def variables(self) -> Mapping[str, object]:
        """The variables that are set, in the order the contract lists them."""
        found: dict[str, object] = {}
        if self.reason is not None:
            found["reason"] = self.reason
        if self.feedback is not None:
            found["feedback"] = self.feedback
        if self.reference is not None:
            found["reference"] = self.reference
        if self.subagents is not None:
            found["subagents"] = [line.as_json() for line in self.subagents]
        return found


class ToolError(SteersmanError):
    """The call itself is at fault, or we are: arguments, limits, internal faults."""


class UserQuestionError(SteersmanError):
    """A question was not asked, or not answered."""


class PlanModeError(SteersmanError):
    """A plan was not reviewed, or not approved."""


class SubagentError(SteersmanError):
    """A message was not accepted for a subagent."""


class HostError(SteersmanError):
    """A host method was refused."""
