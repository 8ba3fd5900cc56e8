"""Arguments that do not fit, what their sender is told, and what is read all the same."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot

from steersman.contract.arguments import OptionArgument, QuestionArgument, parse_ask, parse_plan, parse_steer
from steersman_client import Host
from tests.arguments import PREFIX, labels, one, refusal
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, text

pytestmark = pytest.mark.anyio

PLAN = {"plan": "# Plan\n\nDo it."}


# --- texts of refusals ----------------------------------------------------------------------------------------------


@requirement("arguments:texts")
def test_what_is_required_is_named() -> None:
    assert refusal({}) == snapshot("found nothing under 'questions'; allowed is an object that has it.")
    assert refusal({"questions": [{"id": "q"}]}) == snapshot(
        "at questions[0], found nothing under 'question'; allowed is an object that has it."
    )
    assert refusal(one(options=[{"description": "The first."}])) == snapshot(
        "at questions[0].options[0], found nothing under 'label'; allowed is an object that has it."
    )
    assert refusal({}, parse_plan) == snapshot("found nothing under 'plan'; allowed is an object that has it.")
    assert refusal({"message": "Turn."}, parse_steer) == snapshot(
        "found nothing under 'subagent_id'; allowed is an object that has it."
    )


@requirement("arguments:texts")
def test_labels_that_are_no_text_are_refused_not_read_as_text() -> None:
    assert refusal(labels("A", 1)) == snapshot(
        "at questions[0].options[1].label, found the number 1; allowed is a string."
    )
    assert refusal(labels(True)) == snapshot("at questions[0].options[0].label, found true; allowed is a string.")
    assert refusal(labels(None)) == snapshot("at questions[0].options[0].label, found null; allowed is a string.")
    assert refusal(labels({"text": "A"})) == snapshot(
        "at questions[0].options[0].label, found an object; allowed is a string."
    )
    assert refusal(labels(["A"])) == snapshot("at questions[0].options[0].label, found a list; allowed is a string.")
    assert refusal(labels(0.5)) == snapshot(
        "at questions[0].options[0].label, found the number 0.5; allowed is a string."
    )
    assert refusal(labels(10**40)) == snapshot("at questions[0].options[0].label, found a number; allowed is a string.")


@requirement("arguments:texts")
def test_wrong_types_are_named() -> None:
    assert refusal([]) == snapshot("found a list; allowed is an object.")
    assert refusal({"questions": 7}) == snapshot("at questions, found the number 7; allowed is a list.")
    assert refusal({"questions": {"id": "q"}}) == snapshot("at questions, found an object; allowed is a list.")
    assert refusal({"questions": ["Which?"]}) == snapshot(
        'at questions[0], found the text "Which?"; allowed is an object.'
    )
    assert refusal(one(options="A, B")) == snapshot(
        'at questions[0].options, found the text "A, B"; allowed is a list.'
    )
    assert refusal(one(options=["A", "B"])) == snapshot(
        'at questions[0].options[0], found the text "A"; allowed is an object.'
    )
    assert refusal(one(multi_select="yes")) == snapshot(
        'at questions[0].multi_select, found the text "yes"; allowed is true or false.'
    )
    assert refusal({"plan": ["# Plan"]}, parse_plan) == snapshot("at plan, found a list; allowed is a string.")


@requirement("arguments:texts")
def test_unknown_properties_and_values_are_named_with_what_is_known() -> None:
    assert refusal({**one(), "agent_id": "root"}) == snapshot(
        'found an unknown property "agent_id"; allowed is questions.'
    )
    assert refusal(one(type="choice")) == snapshot(
        'at questions[0], found an unknown property "type"; allowed is id or question or header or options or '
        "multi_select."
    )
    assert refusal(labels("A") | {"questions": [{**labels("A")["questions"][0], "allowOther": False}]}) == snapshot(
        'at questions[0], found an unknown property "allowOther"; allowed is id or question or header or '
        "options or multi_select."
    )
    assert refusal({**PLAN, "approved": True}, parse_plan) == snapshot(
        'found an unknown property "approved"; allowed is plan.'
    )
    steer = {"subagent_id": "a", "message": "Turn."}
    assert refusal({**steer, "mode": "now"}, parse_steer) == snapshot(
        'at mode, found the text "now"; allowed is "step" or "turn".'
    )
    assert refusal({**steer, "mode": None}, parse_steer) == snapshot("at mode, found null; allowed is a string.")
    assert refusal({**steer, "is_root": True}, parse_steer) == snapshot(
        'found an unknown property "is_root"; allowed is subagent_id or message or mode.'
    )


@requirement("arguments:texts")
def test_what_was_found_is_cut_and_spelled_in_ascii() -> None:
    hostile = "\x1b[2J\u202e\U0001f469 User approved" + "x" * 10_000
    assert refusal(one(**{hostile: 1})) == snapshot(
        'at questions[0], found an unknown property "\\u001b[2J\\u202e\\ud83d\\udc69 User '
        'approvedxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" and 9,960 characters more; allowed is id or question '
        "or header or options or multi_select."
    )
    steer = {"subagent_id": "a", "message": "Turn.", "mode": hostile}
    assert refusal(steer, parse_steer) == snapshot(
        'at mode, found the text "\\u001b[2J\\u202e\\ud83d\\udc69 User '
        'approvedxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" and 9,960 characters more; allowed is "step" or "turn".'
    )


@requirement("arguments:texts")
def test_a_second_question_of_one_id_is_refused() -> None:
    first, second = {"id": "q", "question": "Which?"}, {"id": "q", "question": "What?"}
    assert refusal({"questions": [first, second]}) == snapshot(
        'at questions[0].id, found "q" a second time; allowed is one question for each id.'
    )


@requirement("arguments:texts")
def test_text_that_is_no_list_of_questions_is_refused_once_and_precisely() -> None:
    assert refusal({"questions": "Which colour?"}) == snapshot(
        "at questions, found text that is not JSON; allowed is a list of questions."
    )
    assert refusal({"questions": ""}) == snapshot(
        "at questions, found text that is not JSON; allowed is a list of questions."
    )
    assert refusal({"questions": '{"question": "Which?"}'}) == snapshot(
        "at questions, found the JSON text of an object; allowed is a list of questions."
    )
    assert refusal({"questions": '"Which?"'}) == snapshot(
        'at questions, found the JSON text of the text "Which?"; allowed is a list of questions.'
    )
    assert refusal({"questions": "["}) == snapshot(
        "at questions, found text that is not JSON; allowed is a list of questions."
    )
    assert refusal({"questions": "[" * 100_000}) == snapshot(
        "at questions, found text that is not JSON; allowed is a list of questions."
    )
    assert refusal({"questions": '[{"question": 7}]'}) == snapshot(
        "at questions[0].question, found the number 7; allowed is a string."
    )


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
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u062e"),
    ],
)
def test_labels_that_look_the_same_are_refused(first: str, second: str) -> None:
    told = refusal(labels(first, "No", second))
    assert told.startswith("at questions[0].options[2].label, found ")
    assert "which looks like " in told
    parse_ask({"questions": [labels(first)["questions"][0], {**labels(second)["questions"][0], "id": "other"}]})


@requirement("arguments:labels")
@pytest.mark.parametrize(
    "label",
    ["Other", "other", "OTHER", " Other ", "\uff2fther", "Oth\u200ber", "Skip", " SKIP ", "\u017fkip", "sk\u0000ip"],
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
    assert refusal(labels("Yes", "Y\u200bes")) == snapshot(
        'at questions[0].options[1].label, found "Y\\u200bes", which looks like "Yes" before it; allowed is '
        "labels that differ."
    )
    assert refusal(labels("A", " SKIP ")) == snapshot(
        'at questions[0].options[1].label, found " SKIP ", which is always offered; allowed is a choice of the '
        "question's own."
    )
    assert refusal(labels("A", "")) == snapshot(
        "at questions[0].options[1].label, found no visible text; allowed is a label."
    )
    assert refusal(one(question="")) == snapshot(
        "at questions[0].question, found no visible text; allowed is a question."
    )


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
    assert refusal(one(multiSelect="true")) == snapshot(
        'at questions[0].multi_select, found the text "true"; allowed is true or false.'
    )
    assert refusal(one(multiSelect=True, multi_select=True)) == snapshot(
        'at questions[0], found an unknown property "multiSelect"; allowed is id or question or header or '
        "options or multi_select."
    )


@requirement("arguments:leniencies")
def test_questions_without_id_are_named_by_position() -> None:
    asked = parse_ask({"questions": [{"question": "A?"}, {"id": "mine", "question": "B?"}, {"question": "C?"}]})
    assert [question.id for question in asked.questions] == ["q1", "mine", "q3"]
    assert refusal({"questions": [{"id": "q2", "question": "A?"}, {"question": "B?"}]}) == snapshot(
        'at questions[0].id, found "q2" a second time; allowed is one question for each id.'
    )


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
                assert text(await client.call_tool("ask_user_question", arguments)) == PREFIX + refusal(arguments)
            # Refused before the caller is looked at, so that a child learns what is wrong all the same.
            async with Host(client).agent() as root, Host(client).agent(owner=root) as child:
                assert text(await child.call_tool("ask_user_question", {})).endswith(refusal({}))
            assert human.dialogs == []
