"""The three tools: thin adapters between the contract and the services. They decide nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from steersman.contract.arguments import parse_ask, parse_plan, parse_steer
from steersman.questions.requests import Suspended
from steersman.services import Services
from steersman.tools.ask_user_question import ask_user_question
from steersman.tools.call import Structured, ToolCall
from steersman.tools.exit_plan_mode import exit_plan_mode
from steersman.tools.steer_subagent import steer_subagent

A = TypeVar("A")

Run = Callable[[Services, ToolCall], Awaitable[Structured | Suspended]]
"""A tool whose arguments are read: what is left is to run it."""


def _tool(
    parse: Callable[[object], A], run: Callable[[Services, A, ToolCall], Awaitable[Structured | Suspended]]
) -> Callable[[object], Run]:
    def read(raw: object) -> Run:
        arguments = parse(raw)
        return lambda services, call: run(services, arguments, call)

    return read


TOOLS: Final[Mapping[str, Callable[[object], Run]]] = {
    "ask_user_question": _tool(parse_ask, ask_user_question),
    "exit_plan_mode": _tool(parse_plan, exit_plan_mode),
    "steer_subagent": _tool(parse_steer, steer_subagent),
}
"""Each tool by name: raw arguments in, something to run out, or a `ToolError`."""

__all__ = ["TOOLS", "Structured", "ToolCall"]
