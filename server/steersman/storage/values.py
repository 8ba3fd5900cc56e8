"""Values as they lie in the tables: texts byte for byte, and what has parts as compact JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from steersman.canonical import compact
from steersman.questions.types import Answer, Option, Question
from steersman.text import is_unicode

Stored = str | bytes
"""SQLite's texts are UTF-8. One that is not valid Unicode lies there as bytes, and comes back as it was."""


def store_text(text: str) -> Stored:
    return text if is_unicode(text) else text.encode("utf-8", "surrogatepass")


def load_text(stored: Stored) -> str:
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def store_json(value: object) -> str:
    raw = compact(value)
    return raw if is_unicode(raw) else json.dumps(value, separators=(",", ":"))


def store_questions(questions: Sequence[Question]) -> str:
    return store_json([asdict(question) for question in questions])


def load_questions(stored: str) -> tuple[Question, ...]:
    return tuple(map(_question, _objects(stored)))


def _question(values: dict[str, Any]) -> Question:
    values["options"] = tuple(Option(**option) for option in values["options"])
    return Question(**values)


def store_answers(answers: Sequence[Answer]) -> str:
    return store_json([asdict(answer) for answer in answers])


def load_answers(stored: str) -> tuple[Answer, ...]:
    return tuple(map(_answer, _objects(stored)))


def _answer(values: dict[str, Any]) -> Answer:
    values["selected"] = tuple(values["selected"])
    return Answer(**values)


def _objects(stored: str) -> Sequence[dict[str, Any]]:
    return json.loads(stored)
