"""Arguments of tool calls: limits, the frozen schema, the models, and the rules a schema cannot say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from steersman.canonical import compact
from steersman.contract.files import load
from steersman.errors import ToolError
from steersman.json_values import is_list, is_object
from steersman.text import is_unicode, looks_like

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_QUESTIONS: Final = 32
MAX_OPTIONS: Final = 64
MAX_QUESTION_BYTES: Final = 16 * 1024
"""All texts of one question with its options, names of properties included, in UTF-8."""
MAX_PLAN_BYTES: Final = 1024 * 1024
MAX_MESSAGE_BYTES: Final = 256 * 1024
MAX_MESSAGE_JSON: Final = 768 * 1024
"""The same spelled as JSON, where a control character takes six bytes: clients refuse replies over a megabyte."""

RESERVED_LABELS: Final = frozenset({"other", "skip"})
"""What the human is always offered beside the options, as `looks_like` has it."""


class _Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OptionArgument(_Arguments):
    label: str
    description: str = ""


class QuestionArgument(_Arguments):
    id: str
    question: str
    header: str = ""
    # A JSON array is a Python list; the tuple is for us.
    options: Annotated[tuple[OptionArgument, ...], Field(strict=False)] = ()
    multi_select: bool = False


M = TypeVar("M", bound=_Arguments)


class AskArguments(_Arguments):
    questions: Annotated[tuple[QuestionArgument, ...], Field(strict=False)]


class PlanArguments(_Arguments):
    plan: str


class SteerArguments(_Arguments):
    subagent_id: str
    message: str
    mode: Literal["step", "turn"] = "step"


def parse_ask(raw: object) -> AskArguments:
    """Read the arguments of `ask_user_question`.

    Raises:
        ToolError: `LIMIT_EXCEEDED`, or `INVALID_ARGUMENTS` with the path, what was found and what is allowed.
    """
    _check_text(raw)
    read = _read_questions(raw)
    _limit_questions(read)
    arguments = _parse("ask_user_question", AskArguments, read)
    _check_questions(arguments.questions)
    return arguments


def parse_plan(raw: object) -> PlanArguments:
    """Read the arguments of `exit_plan_mode`. Raises as `parse_ask`."""
    _limit_text(raw, "plan", MAX_PLAN_BYTES)
    return _parse("exit_plan_mode", PlanArguments, raw)


def parse_steer(raw: object) -> SteerArguments:
    """Read the arguments of `steer_subagent`. Raises as `parse_ask`."""
    _limit_text(raw, "message", MAX_MESSAGE_BYTES)
    arguments = _parse("steer_subagent", SteerArguments, raw)
    check_message(arguments.message, "message")
    return arguments


def check_message(text: str, path: str = "text") -> None:
    """Check a message to an agent, wherever it came from.

    Raises:
        ToolError: `LIMIT_EXCEEDED`, or `INVALID_ARGUMENTS` for what is no Unicode text or blank.
    """
    _limit_text({path: text}, path, MAX_MESSAGE_BYTES)
    if not is_unicode(text):
        _invalid(path, "half of a surrogate pair, which is no character", "valid Unicode text")
    spelled = len(compact(text).encode())
    if spelled > MAX_MESSAGE_JSON:
        _over(path, f"{spelled:,} bytes once spelled as JSON", f"{MAX_MESSAGE_JSON:,}")
    if not text.strip():
        _invalid(path, "no visible text", "an instruction")


# --- what models write that were trained on other tools -------------------------------------------------------------


def _read_questions(raw: object) -> object:
    """Read `questions` given as the JSON text of a list, `multiSelect`, and questions without an id."""
    if not is_object(raw) or "questions" not in raw:
        return raw
    questions = raw["questions"]
    if isinstance(questions, str):
        questions = _read_list(questions)
    if is_list(questions):
        questions = [_read_question(at, question) for at, question in enumerate(questions, start=1)]
    return {**raw, "questions": questions}


def _read_list(text: str) -> object:
    if len(text) > MAX_QUESTIONS * MAX_QUESTION_BYTES:
        _over("questions", f"{len(text):,} characters of text", f"{MAX_QUESTIONS} questions of 16 KiB each")
    try:
        questions: object = json.loads(text)
    except (ValueError, RecursionError):
        _invalid("questions", "text that is not JSON", "a list of questions")
    if not is_list(questions):
        _invalid("questions", f"the JSON text of {_describe(questions)}", "a list of questions")
    return questions


def _read_question(at: int, question: object) -> object:
    if not is_object(question):
        return question
    read = dict(question)
    if "multiSelect" in read and "multi_select" not in read:
        read["multi_select"] = read.pop("multiSelect")
    if "id" not in read:
        read["id"] = f"q{at}"
    return read


# --- limits, before anything that takes time ------------------------------------------------------------------------


def _over(path: str, found: str, allowed: str) -> NoReturn:
    raise ToolError("LIMIT_EXCEEDED", reason=f"{path} holds {found}; allowed are {allowed}.")


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _limit_text(raw: object, field: str, limit: int) -> None:
    text = raw.get(field) if is_object(raw) else None
    if isinstance(text, str) and (length := _utf8_length(text)) > limit:
        _over(field, f"{length:,} bytes", f"{limit:,}")


def _limit_questions(raw: object) -> None:
    questions = raw.get("questions") if is_object(raw) else None
    if not is_list(questions):
        return
    if len(questions) > MAX_QUESTIONS:
        _over("questions", f"{len(questions):,} questions", f"{MAX_QUESTIONS}")
    for at, question in enumerate(questions):
        options = question.get("options") if is_object(question) else None
        if is_list(options) and len(options) > MAX_OPTIONS:
            _over(f"questions[{at}].options", f"{len(options):,} options", f"{MAX_OPTIONS}")
        length = sum(_utf8_length(text) for text in _texts(question))
        if length > MAX_QUESTION_BYTES:
            _over(f"questions[{at}]", f"{length:,} bytes of text", f"{MAX_QUESTION_BYTES:,}")


def _texts(value: object) -> Iterator[str]:
    """All texts inside a JSON value, keys included, however deep."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif is_object(item):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif is_list(item):
            waiting.extend(item)


# --- the schema -----------------------------------------------------------------------------------------------------


def _invalid(path: str, found: str, allowed: str) -> NoReturn:
    where = f"at {path}, " if path else ""
    raise ToolError("INVALID_ARGUMENTS", reason=f"{where}found {found}; allowed is {allowed}.")


@cache
def _validator(tool: str) -> Validator:
    # Imported on first use: it takes a quarter of a second, and a host waits for tools/list.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load(tool)["inputSchema"])


def _parse(tool: str, model: type[M], raw: object) -> M:
    """Read arguments that the schema accepts.

    The model accepts the same values as the schema (a property test holds them together) and is many times as fast;
    the schema says what is wrong.
    """
    _check_text(raw)
    try:
        return model.model_validate(raw)
    except ValidationError:
        _explain(tool, raw)


def _explain(tool: str, raw: object) -> NoReturn:
    from jsonschema.exceptions import ValidationError as SchemaError

    errors: Iterator[SchemaError] = _validator(tool).iter_errors(cast("Any", raw))
    try:
        error = next(errors)
    except (RecursionError, ValueError):
        # The library prints what it found, and not everything can be printed.
        _invalid("", "a value nested too deeply, or a number too long, to be read", "what the tool's schema has")
    path = _spell_path(error.absolute_path)
    match error.validator:
        case "required":
            keys = cast("Mapping[str, object]", error.instance).keys()
            missing = next(key for key in cast("list[str]", error.validator_value) if key not in keys)
            _invalid(path, f"nothing under {missing!r}", "an object that has it")
        case "additionalProperties":
            known = cast("Mapping[str, object]", cast("Mapping[str, Any]", error.schema)["properties"])
            extra = next(key for key in cast("Mapping[str, object]", error.instance) if key not in known)
            _invalid(path, f"an unknown property {_quote(extra)}", " or ".join(known))
        case "enum":
            allowed = " or ".join(json.dumps(value) for value in cast("list[object]", error.validator_value))
            _invalid(path, _describe(error.instance), allowed)
        case _:
            kinds = {"string": "a string", "object": "an object", "array": "a list", "boolean": "true or false"}
            _invalid(path, _describe(error.instance), kinds[cast("str", error.validator_value)])


def _check_text(raw: object) -> None:
    if not all(map(is_unicode, _texts(raw))):
        _invalid(_path_to_bad_text(raw), "half of a surrogate pair, which is no character", "valid Unicode text")


def _spell_path(path: Sequence[str | int]) -> str:
    spelled = ""
    for part in path:
        plain = isinstance(part, str) and part.isascii() and part.isidentifier()
        spelled += f".{part}" if plain else f"[{_quote(part) if isinstance(part, str) else part}]"
    return spelled.lstrip(".")


def _quote(text: str) -> str:
    """Text as JSON in ASCII, cut: what was found must not carry anything else into an error."""
    quoted = json.dumps(text[:60])
    return quoted if len(text) <= 60 else f"{quoted} and {len(text) - 60:,} characters more"


def _describe(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {_quote(value)}"
        case int() | float():
            return f"the number {str(value)[:40]}" if not isinstance(value, int) or abs(value) < 10**15 else "a number"
        case Mapping():
            return "an object"
        case Sequence():
            return "a list"
        case _:
            return f"a value of type {type(value).__name__}"


def _path_to_bad_text(raw: object) -> str:
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), raw)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str):
            if not is_unicode(item):
                return _spell_path(path)
        elif is_object(item):
            for key, value in item.items():
                if not is_unicode(key):
                    return _spell_path((*path, key))
                waiting.append(((*path, key), value))
        elif is_list(item):
            waiting.extend(((*path, at), value) for at, value in enumerate(item))
    return ""


# --- what the schema cannot say -------------------------------------------------------------------------------------


def _check_questions(questions: Sequence[QuestionArgument]) -> None:
    ids = Counter(question.id for question in questions)
    for at, question in enumerate(questions):
        path = f"questions[{at}]"
        if ids[question.id] > 1:
            _invalid(f"{path}.id", f"{_quote(question.id)} a second time", "one question for each id")
        if not looks_like(question.question):
            _invalid(f"{path}.question", "no visible text", "a question")
        seen: dict[str, str] = {}
        for number, option in enumerate(question.options):
            where = f"{path}.options[{number}].label"
            shown = looks_like(option.label)
            if not shown:
                _invalid(where, "no visible text", "a label")
            if shown in RESERVED_LABELS:
                _invalid(where, f"{_quote(option.label)}, which is always offered", "a choice of the question's own")
            if shown in seen:
                _invalid(where, f"{_quote(option.label)}, which looks like {seen[shown]}", "labels that differ")
            seen[shown] = f"{_quote(option.label)} before it"
