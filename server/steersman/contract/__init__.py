"""The frozen contract: what a model reads, checked on the way in and shaped on the way out."""

from steersman.contract.arguments import (
    AskArguments,
    OptionArgument,
    PlanArguments,
    QuestionArgument,
    SteerArguments,
    check_message,
    parse_ask,
    parse_plan,
    parse_steer,
)
from steersman.contract.differences import contract_differences
from steersman.contract.files import TOOL_NAMES, contract_digest, load, released_digest, tools
from steersman.contract.results import error_message, error_object, error_text

__all__ = [
    "TOOL_NAMES",
    "AskArguments",
    "OptionArgument",
    "PlanArguments",
    "QuestionArgument",
    "SteerArguments",
    "check_message",
    "contract_differences",
    "contract_digest",
    "error_message",
    "error_object",
    "error_text",
    "load",
    "parse_ask",
    "parse_plan",
    "parse_steer",
    "released_digest",
    "tools",
]
