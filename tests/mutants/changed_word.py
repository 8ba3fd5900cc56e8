"""Without the schema freeze: one word of one description is another one."""

from collections.abc import Mapping
from typing import Any

from steersman.contract import files

_load = files.load.__wrapped__


def load(name: str) -> Mapping[str, Any]:
    content = dict(_load(name))
    if name == "ask_user_question":
        content["description"] = content["description"].replace("the human", "the user", 1)
    return content


files.load = load  # type: ignore[assignment]
