"""Questions as a form, and the filled-in form read back: an empty form is never an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import UserQuestionError
from steersman.providers.forms import Dialect, make_form, read_form
from steersman.questions.answers import check_answers
from steersman.questions.types import Answer, Option, Question
from steersman.text import looks_like
from tests.human import Human
from tests.json_schema import JsonSchema
from tests.requirements import requirement
from tests.world import Connect, in_era, text

pytestmark = pytest.mark.anyio

OLD: Dialect = "2025-06-18"
NEW: Dialect = "2025-11-25"
each_dialect = pytest.mark.parametrize("dialect", [OLD, NEW])

AB = (Option("A", "The first."), Option("B"))
SINGLE = Question("one", "Which one?", "Choice", AB)
MANY = Question("many", "Which ones?", "Choices", AB, multi_select=True)
FREE = Question("free", "What?", "Words")
FREE_MANY = Question("free", "What?", "Words", multi_select=True)


def answer(questions: list[Question], content: Mapping[str, Any], dialect: Dialect) -> tuple[Answer, ...]:
    """The answers that a filled-in form gives, read and checked as the service does."""
    return check_answers(questions, read_form(questions, content, dialect))


def refused(questions: list[Question], content: Mapping[str, Any], dialect: Dialect) -> str:
    with pytest.raises(UserQuestionError) as refusal:
        answer(questions, content, dialect)
    assert refusal.value.code == "ANSWER_INVALID"
    assert refusal.value.reason is not None
    return refusal.value.reason


def answer_or_refusal(
    questions: list[Question], content: Mapping[str, Any], dialect: Dialect
) -> tuple[Answer, ...] | UserQuestionError:
    try:
        return answer(questions, content, dialect)
    except UserQuestionError as refusal:
        return refusal


# --- how a form is spelled ------------------------------------------------------------------------------------------


@requirement("forms:dialects")
def test_a_single_choice_is_a_titled_enum_with_other_and_skip() -> None:
    old = make_form([SINGLE], None, OLD).schema["properties"]
    new = make_form([SINGLE], None, NEW).schema["properties"]
    assert list(old) == list(new) == ["q1", "q1_other"]
    assert old["q1"]["enum"] == ["1", "2", "other", "skip"]
    assert old["q1"]["enumNames"] == ["A", "B", "Other", "Skip"]
    assert new["q1"]["oneOf"] == [
        {"const": "1", "title": "A"},
        {"const": "2", "title": "B"},
        {"const": "other", "title": "Other"},
        {"const": "skip", "title": "Skip"},
    ]
    assert old["q1"]["type"] == new["q1"]["type"] == old["q1_other"]["type"] == new["q1_other"]["type"] == "string"


@requirement("forms:dialects")
def test_a_multiple_choice_is_an_array_with_skip_in_later_revisions() -> None:
    fields = make_form([MANY], None, NEW).schema["properties"]
    assert list(fields) == ["q1", "q1_other"]
    assert fields["q1"]["type"] == "array"
    titled = [{"const": "1", "title": "A"}, {"const": "2", "title": "B"}, {"const": "skip", "title": "Skip"}]
    assert fields["q1"]["items"] == {"anyOf": titled}


@requirement("forms:dialects")
def test_a_multiple_choice_is_a_boolean_for_each_option_and_skip_in_2025_06_18() -> None:
    fields = make_form([MANY], None, OLD).schema["properties"]
    assert list(fields) == ["q1_1", "q1_2", "q1_skip", "q1_other"]
    assert [(fields[name]["type"], fields[name]["title"]) for name in ("q1_1", "q1_2", "q1_skip")] == [
        ("boolean", "A"),
        ("boolean", "B"),
        ("boolean", "Skip"),
    ]


@requirement("forms:dialects")
@each_dialect
@pytest.mark.parametrize("question", [FREE, FREE_MANY])
def test_free_text_is_a_string_that_must_not_be_empty(question: Question, dialect: Dialect) -> None:
    schema = make_form([question], None, dialect).schema
    assert list(schema["properties"]) == ["q1"]
    assert schema["properties"]["q1"].items() >= {"type": "string", "minLength": 1}.items()
    assert schema["required"] == ["q1"]


@requirement("forms:dialects")
@each_dialect
def test_everything_but_own_words_is_required(dialect: Dialect) -> None:
    schema = make_form([SINGLE, MANY, FREE], None, dialect).schema
    assert schema["type"] == "object"
    assert set(schema["required"]) == schema["properties"].keys() - {"q1_other", "q2_other"}
    assert not JsonSchema(schema).accepts({})


@requirement("forms:dialects")
@each_dialect
def test_a_form_uses_only_what_its_revision_knows(dialect: Dialect) -> None:
    schema = make_form([SINGLE, MANY, FREE], None, dialect).schema
    common = {"type", "title", "description", "minLength"}
    known = common | ({"enum", "enumNames"} if dialect == OLD else {"oneOf", "items"})
    for field in schema["properties"].values():
        assert field.keys() <= known
        assert field["title"]
        assert field["type"] in ({"string", "boolean"} if dialect == OLD else {"string", "array"})


@requirement("forms:dialects")
@each_dialect
def test_every_question_of_a_batch_stands_in_the_message_and_each_field_is_told_apart(dialect: Dialect) -> None:
    form = make_form([SINGLE, FREE], None, dialect)
    assert form.message == "1. Which one?\n2. What?"
    assert make_form([SINGLE], None, dialect).message == "Which one?"
    assert [field["title"] for name, field in form.schema["properties"].items() if name in ("q1", "q2")] == [
        "Choice",
        "Words",
    ]


# --- what is no answer ----------------------------------------------------------------------------------------------


@requirement("forms:reading")
@each_dialect
@pytest.mark.parametrize("question", [SINGLE, MANY, FREE, FREE_MANY])
def test_an_empty_form_is_no_answer(question: Question, dialect: Dialect) -> None:
    refused([question], {}, dialect)
    refused([question], {"q1_other": ""} if question.options else {"q1": ""}, dialect)
    refused([SINGLE, question], {"q1": "1"}, dialect)


WRONG_SINGLE: list[dict[str, Any]] = [
    {"q1": "other"},
    {"q1": "other", "q1_other": " \n"},
    {"q1": "other", "q1_other": None},
    {"q1": "skip", "q1_other": "but"},
    {"q1_other": "words alone"},
    {"q1": None},
    {"q1": ""},
    {"q1": "A"},
    {"q1": "0"},
    {"q1": "3"},
    {"q1": "01"},
    {"q1": " 1"},
    {"q1": 1},
    {"q1": True},
    {"q1": ["1"]},
    {"q1": {"const": "1"}},
    {"q1": "1", "q1_other": 7},
    {"q1": "1", "q1_other": ["words"]},
    {"q1": "1", "q2": "1"},
    {"q1": "1", "one": "A"},
    {"q1": "1", "q1_1": True},
    {"q1": "1", "": ""},
]


@requirement("forms:reading")
@each_dialect
@pytest.mark.parametrize("content", WRONG_SINGLE, ids=str)
def test_what_is_no_answer_to_a_single_choice(content: dict[str, Any], dialect: Dialect) -> None:
    refused([SINGLE], content, dialect)


WRONG_MANY_NEW: list[dict[str, Any]] = [
    {"q1": []},
    {"q1": [], "q1_other": " "},
    {"q1": ["skip", "1"]},
    {"q1": ["skip", "skip"]},
    {"q1": ["skip"], "q1_other": "but"},
    {"q1": ["1", "1"]},
    {"q1": ["other"], "q1_other": "words"},
    {"q1": ["A"]},
    {"q1": ["3"]},
    {"q1": [1]},
    {"q1": [["1"]]},
    {"q1": "1"},
    {"q1": {"1": True}},
    {"q1": None, "q1_other": "words"},
    {"q1_other": "words alone"},
    {"q1": ["1"], "q1_1": True},
]


@requirement("forms:reading")
@pytest.mark.parametrize("content", WRONG_MANY_NEW, ids=str)
def test_what_is_no_answer_to_a_multiple_choice(content: dict[str, Any]) -> None:
    refused([MANY], content, NEW)


NONE = {"q1_1": False, "q1_2": False, "q1_skip": False}
WRONG_MANY_OLD: list[dict[str, Any]] = [
    NONE,
    {**NONE, "q1_other": " "},
    {**NONE, "q1_1": True, "q1_skip": True},
    {**NONE, "q1_skip": True, "q1_other": "but"},
    {**NONE, "q1_1": "true"},
    {**NONE, "q1_1": 1},
    {**NONE, "q1_1": None},
    {"q1_1": True},
    {"q1_1": True, "q1_2": False},
    {**NONE, "q1_3": True},
    {**NONE, "q1": ["1"]},
    {"q1": ["1"]},
]


@requirement("forms:reading")
@pytest.mark.parametrize("content", WRONG_MANY_OLD, ids=str)
def test_what_is_no_answer_to_a_multiple_choice_in_2025_06_18(content: dict[str, Any]) -> None:
    refused([MANY], content, OLD)


@requirement("forms:reading")
@each_dialect
@pytest.mark.parametrize("words", ["", " \n\t", None, 7, True, ["words"], {}])
def test_what_is_no_free_text(words: object, dialect: Dialect) -> None:
    refused([FREE], {"q1": words}, dialect)
    refused([FREE], {"q1": "words", "q1_other": "more"}, dialect)


@requirement("forms:reading")
@each_dialect
def test_what_is_an_answer(dialect: Dialect) -> None:
    assert answer([SINGLE], {"q1": "2"}, dialect) == (Answer("one", ("B",)),)
    assert answer([SINGLE], {"q1": "2", "q1_other": " "}, dialect) == (Answer("one", ("B",)),)
    assert answer([SINGLE], {"q1": "other", "q1_other": " mine "}, dialect) == (Answer("one", custom=" mine "),)
    assert answer([SINGLE], {"q1": "1", "q1_other": "mine"}, dialect) == (Answer("one", custom="mine"),)
    assert answer([SINGLE], {"q1": "skip"}, dialect) == (Answer("one", skipped=True),)
    assert answer([FREE], {"q1": " words\n"}, dialect) == (Answer("free", custom=" words\n"),)


@requirement("forms:reading")
def test_what_is_an_answer_to_a_multiple_choice() -> None:
    both, skip = (Answer("many", ("A", "B")),), (Answer("many", skipped=True),)
    assert answer([MANY], {"q1": ["2", "1"]}, NEW) == answer([MANY], {**NONE, "q1_1": True, "q1_2": True}, OLD) == both
    assert answer([MANY], {"q1": ["skip"]}, NEW) == answer([MANY], {**NONE, "q1_skip": True}, OLD) == skip
    added = (Answer("many", ("B",), "and C"),)
    assert answer([MANY], {"q1": ["2"], "q1_other": "and C"}, NEW) == added
    assert answer([MANY], {**NONE, "q1_2": True, "q1_other": "and C"}, OLD) == added
    only = (Answer("many", custom="C"),)
    assert answer([MANY], {"q1": [], "q1_other": "C"}, NEW) == only
    assert answer([MANY], {**NONE, "q1_other": "C"}, OLD) == only


# --- any form, any filling ------------------------------------------------------------------------------------------

labels = st.lists(
    st.text(min_size=1, max_size=8).filter(lambda label: looks_like(label) not in ("", "other", "skip")),
    max_size=5,
    unique_by=looks_like,
)


@st.composite
def batches(draw: st.DrawFn) -> list[Question]:
    count = draw(st.integers(1, 4))
    return [
        Question(
            id=f"id{at}",
            question=draw(st.text(max_size=20)) + "?",
            header=draw(st.text(max_size=5)),
            options=tuple(Option(label, draw(st.text(max_size=5))) for label in draw(labels)),
            multi_select=draw(st.booleans()),
        )
        for at in range(count)
    ]


def fillings(schema: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Forms filled in: mostly with what a field offers, sometimes with anything."""
    anything = (
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=3)
    )

    def value(field: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        if field["type"] == "boolean":
            return st.booleans()
        if field["type"] == "array":
            return st.lists(st.sampled_from([each["const"] for each in field["items"]["anyOf"]]), max_size=3)
        offered = field.get("enum") or [each["const"] for each in field.get("oneOf", [])]
        return st.sampled_from(offered) if offered else st.sampled_from(["", " ", "words", "1", "skip"])

    fields: dict[str, Any] = schema["properties"]
    right = {name: value(field) for name, field in fields.items()}
    required = {name: right[name] for name in schema["required"]}
    optional = {name: each for name, each in right.items() if name not in required}
    proper = st.fixed_dictionaries(required, optional=optional)
    wild = st.dictionaries(st.sampled_from([*fields, "q9", ""]), anything, max_size=len(fields))
    return proper | proper.flatmap(lambda content: wild.map(lambda other: {**content, **other})) | wild


@requirement("forms:any-filling")
@each_dialect
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_filling_of_any_form_is_refused_or_gives_answers_that_stand(dialect: Dialect, data: st.DataObject) -> None:
    questions = data.draw(batches())
    content = data.draw(fillings(make_form(questions, None, dialect).schema))
    answers = answer_or_refusal(questions, content, dialect)
    if isinstance(answers, UserQuestionError):
        assert answers.code == "ANSWER_INVALID"
        return
    assert check_answers(questions, answers) == answers
    for asked, given_answer in zip(questions, answers, strict=True):
        offered = [option.label for option in asked.options]
        assert given_answer.id == asked.id
        assert set(given_answer.selected) <= set(offered)
        assert len(given_answer.selected) <= (len(offered) if asked.multi_select else 1)
        said = given_answer.custom is not None and given_answer.custom.strip() != ""
        assert [bool(given_answer.selected) or said, given_answer.skipped].count(True) == 1
        assert given_answer.custom is None or given_answer.custom in content.values()


@requirement("forms:any-filling")
@each_dialect
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_form_can_be_answered_and_none_by_nothing(dialect: Dialect, data: st.DataObject) -> None:
    questions = data.draw(batches())
    form = make_form(questions, None, dialect)
    refused(questions, {}, dialect)
    assert not JsonSchema(form.schema).accepts({})
    content: dict[str, Any] = {}
    for number, asked in enumerate(questions, start=1):
        name = f"q{number}"
        if not asked.options:
            content[name] = "words"
        elif not asked.multi_select:
            content[name] = "1"
        elif dialect == OLD:
            content |= {
                field: field == f"{name}_1" for field in form.schema["required"] if field.startswith(f"{name}_")
            }
        else:
            content[name] = ["1"]
    assert JsonSchema(form.schema).faults(content) == []
    for asked, found in zip(questions, answer(questions, content, dialect), strict=True):
        assert found.selected == tuple(option.label for option in asked.options[:1])


# --- over the wire --------------------------------------------------------------------------------------------------


@requirement("forms:dialects")
@in_era("legacy")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_the_negotiated_revision_decides_the_spelling(
    connect: Connect, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)
    old = revision == "2025-06-18"
    human = Human({**NONE, "q1_2": True} if old else {"q1": ["2"]})
    asked = {"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "multi_select": True}
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            result = await client.call_tool("ask_user_question", {"questions": [asked]})
            assert text(result) == '{"answers":[{"id":"q","selected":["B"]}],"via":"elicitation"}'
            assert list(human.dialogs[0].fields) == (["q1_1", "q1_2", "q1_skip"] if old else ["q1"]) + ["q1_other"]


@requirement("forms:reading")
async def test_an_accepted_form_that_answers_nothing_is_refused(connect: Connect) -> None:
    asked = {"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}
    wrong: list[dict[str, Any]] = [{}, {"q1": "other"}, {"q1": "A"}, {"q1": "skip", "q1_other": "x"}, {"q2": "1"}]
    with anyio.fail_after(5):
        async with connect() as world:
            for content in wrong:
                async with world.client(Human(content)) as client:
                    result = await client.call_tool("ask_user_question", {"questions": [asked]})
                    assert text(result).startswith("ANSWER_INVALID: What came back does not answer what was asked. ")
