"""The demo's dialog with forms of every revision of MCP that has them, filled in at the keyboard and by the script."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from typing import Any, get_args

import anyio
import pytest
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, ErrorData

from steersman.demo.dialog import Dialog, Person
from steersman.demo.narration import Narration
from steersman.demo.people import PersonAtTerminal, ScriptedPerson
from steersman.providers.forms import Dialect, make_form, read_form
from steersman.questions.types import Answer, Option, Question
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DIALECTS = get_args(Dialect)
COLOUR = Question("colour", "Which colour?", "Colour", (Option("red", "like fire"), Option("green")))
SIZES = Question("sizes", "Which sizes?", "Sizes", (Option("small"), Option("large")), multi_select=True)
NAME = Question("name", "Which name?", "Name")


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[str], None]]:
    """Puts lines where the demo reads what is typed."""
    read_end, write_end = os.pipe()
    with open(read_end) as stdin, open(write_end, "w", buffering=1) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda lines: print(lines, file=keys)


async def show(person: Person, schema: dict[str, Any], message: str = "") -> ElicitResult:
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    with anyio.fail_after(5):
        result = await Dialog(Narration(), person)(context(), params)
    assert isinstance(result, ElicitResult)
    return result


def context() -> ClientRequestContext:
    """The dialog takes it and never looks at it."""
    return None  # pyright: ignore[reportReturnType]


async def fill_in(person: Person, dialect: Dialect, *questions: Question) -> list[Answer]:
    form = make_form(questions, None, dialect)
    result = await show(person, form.schema, form.message)
    assert result.action == "accept"
    return read_form(questions, result.content or {}, dialect)


@requirement("demo:person")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_one_choice_by_number_or_in_own_words_or_skipped(dialect: Dialect, keyboard: Callable[[str], None]):
    person = PersonAtTerminal(Narration())
    keyboard("2\no\nblue \u2003\ns")

    answers = [(await fill_in(person, dialect, COLOUR))[0] for _ in range(3)]

    assert answers == [
        Answer("colour", ("green",)),
        Answer("colour", custom="blue \u2003"),
        Answer("colour", skipped=True),
    ]


@requirement("demo:person")
async def test_several_choices_by_numbers_where_the_form_has_a_list(keyboard: Callable[[str], None]):
    keyboard("2, 1 o\nhuge")

    answers = await fill_in(PersonAtTerminal(Narration()), "2025-11-25", SIZES)

    assert answers == [Answer("sizes", ("small", "large"), "huge")] or answers == [
        Answer("sizes", ("large", "small"), "huge")
    ]


@requirement("demo:person")
async def test_several_choices_by_yes_and_no_where_the_form_has_none(keyboard: Callable[[str], None]):
    keyboard("n\nperhaps\nyes\nN\nhuge")

    answers = await fill_in(PersonAtTerminal(Narration()), "2025-06-18", SIZES)

    assert answers == [Answer("sizes", ("large",), "huge")]


@requirement("demo:person")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_script_answers_every_kind_of_question(dialect: Dialect):
    colour, sizes, name = await fill_in(ScriptedPerson(Narration()), dialect, COLOUR, SIZES, NAME)

    assert (colour.selected, sizes.selected) == (("red",), ("small", "large"))
    assert name.custom


@requirement("demo:person")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_script_answers_in_words_once_when_told_to(dialect: Dialect):
    person = ScriptedPerson(Narration())
    person.answer_next_in_words("teal")

    answers = [(await fill_in(person, dialect, COLOUR))[0] for _ in range(2)]

    assert answers == [Answer("colour", custom="teal"), Answer("colour", ("red",))]


@requirement("demo:person")
@pytest.mark.parametrize("wrong", ["", "0", "4x", "9", "1 2", "1 1", "s 1", "o 1", "²"])
async def test_what_does_not_fit_is_asked_again(wrong: str, keyboard: Callable[[str], None]):
    keyboard(f"{wrong}\n1")

    assert await fill_in(PersonAtTerminal(Narration()), "2025-11-25", COLOUR) == [Answer("colour", ("red",))]


@requirement("demo:person")
@pytest.mark.parametrize(("typed", "action"), [("1\nd", "decline"), ("1\nc", "cancel")])
async def test_a_form_can_be_left_half_way(typed: str, action: str, keyboard: Callable[[str], None]):
    keyboard(typed)

    result = await show(PersonAtTerminal(Narration()), make_form([COLOUR, NAME], None, "2025-11-25").schema)

    assert (result.action, result.content) == (action, None)


@requirement("demo:person")
async def test_plain_enums_without_titles_are_shown_by_their_values(keyboard: Callable[[str], None]):
    schema = {"type": "object", "properties": {"pick": {"type": "string", "enum": ["a", "b"]}}, "required": ["pick"]}
    keyboard("o\n2")

    assert (await show(PersonAtTerminal(Narration()), schema)).content == {"pick": "b"}


@requirement("demo:person")
async def test_a_text_that_is_not_required_may_be_left_out(keyboard: Callable[[str], None]):
    keyboard("")

    schema = {"type": "object", "properties": {"note": {"type": "string"}}}

    assert (await show(PersonAtTerminal(Narration()), schema)).content == {}


@requirement("demo:person")
@pytest.mark.parametrize(
    "params",
    [
        ElicitRequestURLParams(message="", elicitation_id="1", url="https://example.org"),
        ElicitRequestFormParams(
            message="", requested_schema={"type": "object", "properties": {"n": {"type": "number"}}}
        ),
    ],
    ids=["url", "number"],
)
async def test_what_the_host_cannot_show_is_refused_and_counts_as_not_shown(
    params: ElicitRequestURLParams | ElicitRequestFormParams,
):
    dialog = Dialog(Narration(), ScriptedPerson(Narration()))

    assert isinstance(await dialog(context(), params), ErrorData)
    assert dialog.shown == 0


@requirement("demo:person")
async def test_text_in_a_form_moves_no_cursor(capsys: pytest.CaptureFixture[str]):
    schema = {"type": "object", "properties": {"n": {"type": "string", "title": "\x1b[2Jx"}}, "required": ["n"]}

    await show(ScriptedPerson(Narration()), schema, "a\rb")

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\r" not in shown
