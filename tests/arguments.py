"""Arguments of `ask_user_question` for tests, and what the sender of wrong ones is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from steersman.contract.arguments import parse_ask
from steersman.contract.results import error_text
from steersman.errors import ToolError
from steersman.text import is_unicode

PREFIX = "INVALID_ARGUMENTS: The arguments do not fit: "


def refusal(raw: object, parse: Callable[[object], BaseModel] = parse_ask) -> str:
    """What the sender of these arguments is told, without what every such refusal begins with."""
    with pytest.raises(ToolError) as refused:
        parse(raw)
    told = error_text(refused.value)
    assert is_unicode(told)
    assert told.startswith(PREFIX)
    return told.removeprefix(PREFIX)


def one(**question: Any) -> dict[str, Any]:
    return {"questions": [{"id": "q", "question": "Which?", **question}]}


def labels(*given: Any) -> dict[str, Any]:
    return one(options=[{"label": label} for label in given])
