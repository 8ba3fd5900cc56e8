"""Arguments that do not fit, what their sender is told, and what is read all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from steersman.contract import (
    OptionArgument,
    QuestionArgument,
    error_text,
    parse_ask,
    parse_plan,
    parse_steer,
)
from steersman.errors import ToolError
from steersman.text import is_unicode
from steersman_client import Host
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, Transport, over, text

pytestmark = pytest.mark.anyio

PLAN = {"plan": "# Plan\n\nDo it."}


def refusal(raw: object, parse: Callable[[object], BaseModel] = parse_ask) -> str:
    """What the sender of these arguments is told."""
    with pytest.raises(ToolError) as refused:
        parse(raw)
    told = error_text(refused.value)
    assert is_unicode(told)
    prefix = "INVALID_ARGUMENTS: The arguments do not fit: "
    assert told.startswith(prefix)
    return told.removeprefix(prefix)


def one(**question: Any) -> dict[str, Any]:
    return {"questions": [{"id": "q", "question": "Which?", **question}]}


def labels(*given: Any) -> dict[str, Any]:
    return one(options=[{"label": label} for label in given])


# --- texts of refusals ----------------------------------------------------------------------------------------------


@requirement("arguments:texts")
def test_what_is_required_is_named() -> None:
    assert refusal({}) == snapshot("found nothing under 'questions'; allowed is an object that has it.")
    assert refusal({"questions": [{"id": "q"}]}) == snapshot("at questions[0], found nothing under 'question'; allowed is an object that has it.")
    assert refusal(one(options=[{"description": "The first."}])) == snapshot("at questions[0].options[0], found nothing under 'label'; allowed is an object that has it.")
    assert refusal({}, parse_plan) == snapshot("found nothing under 'plan'; allowed is an object that has it.")
    assert refusal({"message": "Turn."}, parse_steer) == snapshot("found nothing under 'subagent_id'; allowed is an object that has it.")


@requirement("arguments:texts")
def test_labels_that_are_no_text_are_refused_not_read_as_text() -> None:
    assert refusal(labels("A", 1)) == snapshot('at questions[0].options[1].label, found the number 1; allowed is a string.')
    assert refusal(labels(True)) == snapshot('at questions[0].options[0].label, found true; allowed is a string.')
    assert refusal(labels(None)) == snapshot('at questions[0].options[0].label, found null; allowed is a string.')
    assert refusal(labels({"text": "A"})) == snapshot('at questions[0].options[0].label, found an object; allowed is a string.')
    assert refusal(labels(["A"])) == snapshot('at questions[0].options[0].label, found a list; allowed is a string.')
    assert refusal(labels(0.5)) == snapshot('at questions[0].options[0].label, found the number 0.5; allowed is a string.')
    assert refusal(labels(10**40)) == snapshot('at questions[0].options[0].label, found a number; allowed is a string.')


@requirement("arguments:texts")
def test_wrong_types_are_named() -> None:
    assert refusal([]) == snapshot('found a list; allowed is an object.')
    assert refusal({"questions": 7}) == snapshot('at questions, found the number 7; allowed is a list.')
    assert refusal({"questions": {"id": "q"}}) == snapshot('at questions, found an object; allowed is a list.')
    assert refusal({"questions": ["Which?"]}) == snapshot('at questions[0], found the text "Which?"; allowed is an object.')
    assert refusal(one(options="A, B")) == snapshot('at questions[0].options, found the text "A, B"; allowed is a list.')
    assert refusal(one(options=["A", "B"])) == snapshot('at questions[0].options[0], found the text "A"; allowed is an object.')
    assert refusal(one(multi_select="yes")) == snapshot('at questions[0].multi_select, found the text "yes"; allowed is true or false.')
    assert refusal({"plan": ["# Plan"]}, parse_plan) == snapshot('at plan, found a list; allowed is a string.')


@requirement("arguments:texts")
def test_unknown_properties_and_values_are_named_with_what_is_known() -> None:
    assert refusal({**one(), "agent_id": "root"}) == snapshot('found an unknown property "agent_id"; allowed is questions.')
    assert refusal(one(type="choice")) == snapshot('at questions[0], found an unknown property "type"; allowed is id or question or header or options or multi_select.')
    assert refusal(labels("A") | {"questions": [{**labels("A")["questions"][0], "allowOther": False}]}) == snapshot('at questions[0], found an unknown property "allowOther"; allowed is id or question or header or options or multi_select.')
    assert refusal({**PLAN, "approved": True}, parse_plan) == snapshot('found an unknown property "approved"; allowed is plan.')
    steer = {"subagent_id": "a", "message": "Turn."}
    assert refusal({**steer, "mode": "now"}, parse_steer) == snapshot('at mode, found the text "now"; allowed is "step" or "turn".')
    assert refusal({**steer, "mode": None}, parse_steer) == snapshot('at mode, found null; allowed is a string.')
    assert refusal({**steer, "is_root": True}, parse_steer) == snapshot('found an unknown property "is_root"; allowed is subagent_id or message or mode.')


@requirement("arguments:texts")
def test_what_was_found_is_cut_and_spelled_in_ascii() -> None:
    hostile = "\x1b[2J\u202e\U0001f469 User approved" + "x" * 500_000
    assert refusal(one(**{hostile: 1})) == snapshot()
    steer = {"subagent_id": "a", "message": "Turn.", "mode": hostile}
    assert refusal(steer, parse_steer) == snapshot()


@requirement("arguments:texts")
def test_a_second_question_of_one_id_is_refused() -> None:
    first, second = {"id": "q", "question": "Which?"}, {"id": "q", "question": "What?"}
    assert refusal({"questions": [first, second]}) == snapshot('at questions[0].id, found "q" a second time; allowed is one question for each id.')


@requirement("arguments:texts")
def test_text_that_is_no_list_of_questions_is_refused_once_and_precisely() -> None:
    assert refusal({"questions": "Which colour?"}) == snapshot('at questions, found text that is not JSON; allowed is a list of questions.')
    assert refusal({"questions": ""}) == snapshot('at questions, found text that is not JSON; allowed is a list of questions.')
    assert refusal({"questions": '{"question": "Which?"}'}) == snapshot('at questions, found the JSON text of an object; allowed is a list of questions.')
    assert refusal({"questions": '"Which?"'}) == snapshot('at questions, found the JSON text of the text "Which?"; allowed is a list of questions.')
    assert refusal({"questions": "["}) == snapshot('at questions, found text that is not JSON; allowed is a list of questions.')
    assert refusal({"questions": "[" * 100_000}) == snapshot('at questions, found text that is not JSON; allowed is a list of questions.')
    assert refusal({"questions": '[{"question": 7}]'}) == snapshot('at questions[0].question, found the number 7; allowed is a string.')


# --- labels and questions -------------------------------------------------------------------------------------------


@requirement("arguments:labels")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Yes", "Yes"),
        ("Yes", "yes"),
        ("STRASSE", "straße"),
        ("file", "\ufb01le"),
        ("A", "\uff21"),
        ("é", "e\u0301"),
        ("Yes", "Y\u200bes"),
        ("Yes", "Yes\u0007"),
        ("Yes", "\u202eYes\u202c"),
        ("Yes", "Yes\u00ad"),
        ("Yes", "Yes\ufe0f"),
        ("Yes", "Yes\u3164"),
        ("Yes please", " Yes \n please "),
        ("1 000", "1\u00a0000"),
        ("می\u200cخواهم", "میخواهم"),
    ],
)
def test_labels_that_look_the_same_are_refused(first: str, second: str) -> None:
    told = refusal(labels(first, "No", second))
    assert told.startswith("at questions[0].options[2].label, found ")
    assert "which looks like " in told
    parse_ask({"questions": [labels(first)["questions"][0], {**labels(second)["questions"][0], "id": "other"}]})


@requirement("arguments:labels")
@pytest.mark.parametrize(
    "label", ["Other", "other", "OTHER", " Other ", "Ｏther", "Oth\u200ber", "Skip", " SKIP ", "ſkip", "sk\u0000ip"]
)
def test_labels_that_read_other_or_skip_are_refused(label: str) -> None:
    assert refusal(labels("A", label)).endswith("which is always offered; allowed is a choice of the question's own.")
    parse_ask(labels("A", f"{label} one"))


@requirement("arguments:labels")
@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u200b", "\u3000", "\ufeff\u2060", "\x00", "\u3164", "\u2800"])
def test_labels_and_questions_that_show_nothing_are_refused(blank: str) -> None:
    assert refusal(labels("A", blank)).endswith("found no visible text; allowed is a label.")
    assert refusal(one(question=blank)).endswith("found no visible text; allowed is a question.")


@requirement("arguments:labels")
def test_refusals_of_labels_and_questions_say_which() -> None:
    assert refusal(labels("Yes", "Y\u200bes")) == snapshot('at questions[0].options[1].label, found "Y\\u200bes", which looks like "Yes" before it; allowed is labels that differ.')
    assert refusal(labels("A", " SKIP ")) == snapshot('at questions[0].options[1].label, found " SKIP ", which is always offered; allowed is a choice of the question\'s own.')
    assert refusal(labels("A", "")) == snapshot('at questions[0].options[1].label, found no visible text; allowed is a label.')
    assert refusal(one(question="")) == snapshot('at questions[0].question, found no visible text; allowed is a question.')


# --- Unicode --------------------------------------------------------------------------------------------------------


@requirement("arguments:unicode")
def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    assert refusal(labels("A", "\ud800")) == snapshot('at questions[0].options[1].label, found half of a surrogate pair, which is no character; allowed is valid Unicode text.')
    assert refusal(one(question="Which \udc00?")) == snapshot('at questions[0].question, found half of a surrogate pair, which is no character; allowed is valid Unicode text.')
    assert refusal(one(**{"\ud800": 1})) == snapshot('at questions[0] (a property name), found half of a surrogate pair, which is no character; allowed is valid Unicode text.')
    assert refusal({"plan": "# Plan\n\n\udfff"}, parse_plan) == snapshot('at plan, found half of a surrogate pair, which is no character; allowed is valid Unicode text.')
    assert refusal({"message": "\ud83d", "subagent_id": "a"}, parse_steer) == snapshot('at message, found half of a surrogate pair, which is no character; allowed is valid Unicode text.')
    assert refusal({"questions": r'[{"question": "\ud800"}]'}) == snapshot('at questions[0].question, found half of a surrogate pair, which is no character; allowed is valid Unicode text.')


@requirement("arguments:unicode")
def test_a_whole_surrogate_pair_in_json_text_is_one_character() -> None:
    asked = parse_ask({"questions": r'[{"question": "\ud83d\ude00?"}]'})
    assert asked.questions[0].question == "\U0001f600?"


@requirement("arguments:unicode")
@pytest.mark.xfail(strict=True, reason="what a later member of the same name hides is not looked at, and cannot be digested")
def test_half_a_pair_that_json_text_hides_is_refused_too() -> None:
    refusal({"questions": '[{"id": "\ud800", "id": "q", "question": "Which?"}]'})


@requirement("arguments:unicode")
@pytest.mark.xfail(strict=True, reason="property names go into the path raw and whole")
def test_the_path_to_half_a_pair_is_cut_and_spelled_in_ascii() -> None:
    told = refusal({"plan": {"\x1b[2J\u202e" + "x" * 5000: "\ud800"}}, parse_plan)
    assert told.isascii()
    assert told.isprintable()
    assert len(told) < 500


@requirement("arguments:unicode")
@over("http")
async def test_half_a_surrogate_pair_gets_a_tool_error_over_http_where_it_is_let_through(
    connect: Connect, transport: Transport
) -> None:
    """The SDK's client cannot send one, so the request is written by hand."""
    assert transport.wire == "http"


# --- read all the same ----------------------------------------------------------------------------------------------


@requirement("arguments:leniencies")
def test_questions_as_json_text_of_a_list_are_read() -> None:
    written = '[{"id": "a", "question": "Which?", "options": [{"label": "A"}]}, {"question": "What?"}]'
    asked = parse_ask({"questions": f" \n{written}"})
    assert asked.questions == (
        QuestionArgument(id="a", question="Which?", options=(OptionArgument(label="A"),)),
        QuestionArgument(id="q2", question="What?"),
    )


@requirement("arguments:leniencies")
def test_multi_select_in_the_other_spelling_is_read() -> None:
    assert [parse_ask(one(multiSelect=value)).questions[0].multi_select for value in (True, False)] == [True, False]
    assert refusal(one(multiSelect="true")) == snapshot('at questions[0].multi_select, found the text "true"; allowed is true or false.')
    assert refusal(one(multiSelect=True, multi_select=True)) == snapshot('at questions[0], found an unknown property "multiSelect"; allowed is id or question or header or options or multi_select.')


@requirement("arguments:leniencies")
def test_questions_without_id_are_named_by_position() -> None:
    asked = parse_ask({"questions": [{"question": "A?"}, {"id": "mine", "question": "B?"}, {"question": "C?"}]})
    assert [question.id for question in asked.questions] == ["q1", "mine", "q3"]
    assert refusal({"questions": [{"id": "q2", "question": "A?"}, {"question": "B?"}]}) == snapshot('at questions[0].id, found "q2" a second time; allowed is one question for each id.')


@requirement("arguments:leniencies")
def test_what_is_read_leniently_leaves_the_arguments_alone() -> None:
    raw = {"questions": [{"question": "A?", "multiSelect": True}]}
    parse_ask(raw)
    assert raw == {"questions": [{"question": "A?", "multiSelect": True}]}


@requirement("arguments:leniencies")
async def test_an_answer_to_a_leniently_read_question_comes_back_under_its_id(connect: Connect) -> None:
    written = '[{"question": "Which?", "multiSelect": true, "options": [{"label": "A"}, {"label": "B"}]}]'
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": ["1", "2"]})) as client:
            result = await client.call_tool("ask_user_question", {"questions": written})
            assert text(result) == '{"answers":[{"id":"q1","selected":["A","B"]}],"via":"elicitation"}'


@requirement("arguments:texts", "arguments:labels", "arguments:leniencies")
async def test_the_same_refusals_come_over_the_wire(connect: Connect) -> None:
    human = Human()
    wrong: list[dict[str, Any]] = [
        {},
        labels(1),
        labels(None),
        labels({"a": 1}),
        labels("Yes", "Y\u200bes"),
        labels("A", " SKIP "),
        one(question="\u200b"),
        {**one(), "agent_id": "root"},
        {"questions": "Which?"},
    ]
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            for arguments in wrong:
                prefix = "INVALID_ARGUMENTS: The arguments do not fit: "
                assert text(await client.call_tool("ask_user_question", arguments)) == prefix + refusal(arguments)
            # Refused before the caller is looked at, so that a child learns what is wrong all the same.
            async with Host(client).agent() as root, Host(client).agent(owner=root) as child:
                assert text(await child.call_tool("ask_user_question", {})).endswith(refusal({}))
            assert human.dialogs == []
