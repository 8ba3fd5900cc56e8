"""Made-up JSON values, and arguments that are almost right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

VALID: Final[dict[str, dict[str, Any]]] = {
    "ask_user_question": {
        "questions": [
            {
                "id": "one",
                "question": "Which?",
                "header": "Choice",
                "options": [{"label": "A", "description": "The first."}, {"label": "B"}],
                "multi_select": True,
            },
            {"id": "two", "question": "What?"},
        ]
    },
    "exit_plan_mode": {"plan": "# Plan\n\nDo it."},
    "steer_subagent": {"subagent_id": "nobody", "message": "Turn left.", "mode": "turn"},
}
"""Arguments that each tool reads."""

NAMES: Final = (
    *("questions", "id", "question", "header", "options", "label", "description", "multi_select", "multiSelect"),
    *("plan", "message", "mode", "subagent_id", "agent_id", "is_root", "answers", "approved", "_meta", "$ref"),
)
TEXTS: Final = (
    *("", " ", "A", "B", "Other", "skip", "one", "step", "turn", "now", "[]", '[{"question":"?"}]', "{", "null"),
    *("\x00", "\x1b[31m", "\u202e", "\u200b", "café", "\U0001f469\u200d\U0001f4bb", "x" * 5000),
)
NUMBERS: Final = (0, -1, 1, 2**63, 10**30, 0.5, -0.0, 1e308)


class Fuzz:
    """A source of JSON values that is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def value(self, depth: int = 3) -> Any:
        """Any JSON value."""
        random = self._random
        kinds: list[Callable[[], Any]] = [
            lambda: None,
            lambda: random.random() < 0.5,
            lambda: random.choice(NUMBERS),
            lambda: random.choice(TEXTS),
        ]
        if depth:
            kinds += [
                lambda: self.object(depth - 1),
                lambda: [self.value(depth - 1) for _ in range(random.randrange(4))],
            ]
        return random.choice(kinds)()

    def object(self, depth: int = 3) -> dict[str, Any]:
        """Any JSON object."""
        random = self._random
        return {random.choice((*NAMES, *TEXTS)): self.value(depth) for _ in range(random.randrange(4))}

    def arguments(self, tool: str) -> dict[str, Any]:
        """An object: anything at all, or what the tool takes with a few changes."""
        if self._random.random() < 0.3:
            return self.object()
        arguments = copy.deepcopy(VALID[tool])
        for _ in range(self._random.randrange(1, 4)):
            self._change(arguments)
        return arguments

    def _change(self, arguments: dict[str, Any]) -> None:
        random = self._random
        holder: dict[Any, Any] | list[Any] = random.choice([arguments, *(value for _, _, value in members(arguments))])
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        kind = random.randrange(4)
        if keys and kind == 0:
            del holder[random.choice(keys)]
        elif keys and kind == 1:
            holder[random.choice(keys)] = self.value(2)
        elif isinstance(holder, dict):
            holder[random.choice(NAMES)] = self.value(1)
        else:
            holder.append(copy.deepcopy(random.choice(holder)) if holder and kind == 2 else self.value(2))


def members(value: dict[str, Any] | list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Each object and list inside a value, with where it stands: `(holder, key, held)`."""
    pairs: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in pairs:
        if isinstance(inner, dict | list):
            yield value, key, inner
            yield from members(cast("Any", inner))
