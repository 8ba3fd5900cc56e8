"""Results and errors in their frozen shape, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.canonical import compact
from steersman.contract.files import load
from steersman.errors import SteersmanError


def error_message(error: SteersmanError) -> str:
    """The text of `error`, from the contract's template and the error's own variables.

    Values are put in as they are, in one pass: braces in what a human wrote stay what they are.
    """
    template: Mapping[str, str] = load("errors")["codes"][error.code]
    variables = error.variables()
    text = template["message"]
    for name, value in variables.items():
        text += template.get(name, "") if value != "" else ""
    parts: list[str] = []
    rest = text
    while rest:
        plain, opened, rest = rest.partition("{")
        parts.append(plain)
        if opened:
            name, _, rest = rest.partition("}")
            value = variables[name]
            parts.append(value if isinstance(value, str) else compact(value))
    return "".join(parts)


def error_object(error: SteersmanError) -> dict[str, Any]:
    """`{name, code, message, ...variables}`: the same object in tool results and in host errors."""
    return {"name": error.name, "code": error.code, "message": error_message(error), **error.variables()}


def error_text(error: SteersmanError) -> str:
    """`CODE: message`, what a host shows that passes only text on."""
    return f"{error.code}: {error_message(error)}"
