"""Questions as a form for a host's dialog, and the filled-in form read back.

Values are positions and titles are labels, so what is shown can be spelled safely while labels come back byte for
byte. Every choice is a required field: an empty form is never a valid answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from steersman.errors import UserQuestionError
from steersman.json_values import is_list
from steersman.questions.answers import has_words
from steersman.questions.types import Answer, PlanReview, Question
from steersman.text import visible

OTHER: Final = "other"
SKIP: Final = "skip"
_OTHER_TITLE: Final = "Other"
_SKIP_TITLE: Final = "Skip"
_OWN_WORDS_TITLE: Final = "in your own words"

Dialect = Literal["2025-06-18", "2025-11-25"]
"""How a form is spelled: 2025-06-18 has no arrays and titles enums by `enumNames`; later revisions have both."""


@dataclass(frozen=True)
class Form:
    """An elicitation's message and requested schema."""

    message: str
    schema: dict[str, Any]


def make_form(questions: Sequence[Question], intent: PlanReview | None, dialect: Dialect) -> Form:
    """Spell a batch of questions as one form."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, question in enumerate(questions, start=1):
        name = f"q{number}"
        title = visible(question.header) or _cut(question.question)
        # A host may show fields one by one: each says what it belongs to. A single question stands in the message.
        asked = visible(question.question, multiline=True) if len(questions) > 1 else ""
        fields = _choice(name, title, asked, question, dialect) if question.options else _free_text(name, title, asked)
        properties |= fields
        required += fields
        if question.options:
            properties[f"{name}_{OTHER}"] = _own_words(title, question, intent)
    schema = {"type": "object", "properties": properties, "required": required}
    return Form(_message(questions, intent), schema)


def read_form(questions: Sequence[Question], content: Mapping[str, object], dialect: Dialect) -> list[Answer]:
    """Read a form that came back.

    Raises:
        UserQuestionError: `ANSWER_INVALID` for a field that was not in the form, is missing or holds something else
            than what it offers.
    """
    known = make_form(questions, None, dialect).schema["properties"]
    if not content.keys() <= known.keys():
        _invalid("a field that was not asked for")
    return [_read(number, question, content, dialect) for number, question in enumerate(questions, start=1)]


def _free_text(name: str, title: str, asked: str) -> dict[str, dict[str, Any]]:
    return {name: {"type": "string", "title": title, **_description(asked), "minLength": 1}}


def _choice(name: str, title: str, asked: str, question: Question, dialect: Dialect) -> dict[str, dict[str, Any]]:
    """The required fields of a question with options; only 2025-06-18 needs several for a multiple choice."""
    choices = [(str(at), visible(option.label)) for at, option in enumerate(question.options, start=1)]
    explained = [visible(option.description) for option in question.options]
    skip = (SKIP, _SKIP_TITLE)
    if question.multi_select and dialect == "2025-06-18":
        return {
            f"{name}_{value}": {"type": "boolean", "title": shown, **_description(asked, about)}
            for (value, shown), about in zip([*choices, skip], [*explained, ""], strict=True)
        }
    lines = [f"{shown}: {about}" for (_, shown), about in zip(choices, explained, strict=True) if about]
    common = {"title": title, **_description(asked, *lines)}
    if question.multi_select:
        return {name: {"type": "array", **common, "items": {"anyOf": _titled([*choices, skip])}}}
    offered = [*choices, (OTHER, _OTHER_TITLE), skip]
    if dialect == "2025-06-18":
        enum = {"enum": [value for value, _ in offered], "enumNames": [shown for _, shown in offered]}
        return {name: {"type": "string", **common, **enum}}
    return {name: {"type": "string", **common, "oneOf": _titled(offered)}}


def _own_words(title: str, question: Question, intent: PlanReview | None) -> dict[str, Any]:
    effect = "Adds to the choice." if question.multi_select else "Replaces the choice."
    if intent is not None:
        effect = "Anything written here keeps planning."
    return {"type": "string", "title": f"{title}: {_OWN_WORDS_TITLE}", "description": effect}


def _titled(choices: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"const": value, "title": shown} for value, shown in choices]


def _description(*lines: str) -> dict[str, str]:
    text = "\n".join(line for line in lines if line)
    return {"description": text} if text else {}


def _message(questions: Sequence[Question], intent: PlanReview | None) -> str:
    if intent is not None:
        return f"{visible(intent.plan, multiline=True)}\n\n{questions[0].question}"
    if len(questions) == 1:
        return visible(questions[0].question, multiline=True)
    lines = [f"{number}. {visible(question.question, multiline=True)}" for number, question in enumerate(questions, 1)]
    return "\n".join(lines)


def _cut(text: str) -> str:
    shown = visible(text.strip().splitlines()[0])
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _read(number: int, question: Question, content: Mapping[str, object], dialect: Dialect) -> Answer:
    name = f"q{number}"
    if not question.options:
        return Answer(question.id, custom=_words(content.get(name), number))
    words = _words(content.get(f"{name}_{OTHER}"), number)
    if not question.multi_select:
        values = [_one_value(content.get(name), number)]
    elif dialect == "2025-06-18":
        values = _flags(name, number, len(question.options), content)
    else:
        values = _list_of_values(content.get(name), number)
    if values == [OTHER] and not question.multi_select:
        if not has_words(words):
            _invalid(f"Other without words for question {number}")
        return Answer(question.id, custom=words)
    if SKIP in values:
        if values != [SKIP] or has_words(words):
            _invalid(f"question {number} both skipped and answered")
        return Answer(question.id, skipped=True)
    by_value = {str(at): option.label for at, option in enumerate(question.options, start=1)}
    if any(value not in by_value for value in values):
        _invalid(f"a choice that question {number} did not offer")
    return Answer(question.id, tuple(by_value[value] for value in values), words)


def _words(value: object, number: int) -> str | None:
    if value is not None and not isinstance(value, str):
        _invalid(f"something that is no text for question {number}")
    return value


def _one_value(value: object, number: int) -> str:
    if not isinstance(value, str):
        _invalid(f"no choice for question {number}")
    return value


def _list_of_values(value: object, number: int) -> list[str]:
    if not is_list(value):
        _invalid(f"no list of choices for question {number}")
    values: list[str] = []
    for item in value:
        if not isinstance(item, str):
            _invalid(f"a choice that question {number} did not offer")
        values.append(item)
    return values


def _flags(name: str, number: int, options: int, content: Mapping[str, object]) -> list[str]:
    values: list[str] = []
    for value in [*(str(at) for at in range(1, options + 1)), SKIP]:
        flag = content.get(f"{name}_{value}")
        if not isinstance(flag, bool):
            _invalid(f"no yes or no to every choice of question {number}")
        if flag:
            values.append(value)
    return values


def _invalid(found: str) -> NoReturn:
    raise UserQuestionError("ANSWER_INVALID", reason=f"Found was {found}.")
