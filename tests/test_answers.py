"""Whose answer it is, and whether it is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from steersman.questions.requests import Card
from steersman.questions.types import Answer
from steersman_client import Host
from tests.human import Human
from tests.providers import ScriptedProvider, choosing
from tests.requirements import requirement
from tests.world import Connect, code, in_era, text

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
BATCH: dict[str, Any] = {
    "questions": [
        {"id": "one", "question": "Which one?", "options": [{"label": "A"}, {"label": "B"}]},
        {"id": "many", "question": "Which ones?", "multi_select": True, "options": [{"label": "C"}, {"label": "D"}]},
        {"id": "free", "question": "What else?"},
    ]
}


@requirement("answer:own")
async def test_two_agents_that_ask_the_same_at_once_each_get_their_own_answer(connect: Connect) -> None:
    humans = {"first": Human(), "second": Human()}
    answers: dict[str, str] = {}
    with anyio.fail_after(5):
        async with (
            connect() as world,
            world.client(humans["first"]) as one,
            world.client(humans["second"]) as two,
            anyio.create_task_group() as group,
        ):
            host = Host(one)
            agents = {"first": (one, await host.enter()), "second": (two, await host.enter())}

            async def ask(name: str) -> None:
                client, agent = agents[name]
                answers[name] = text(await client.call_tool("ask_user_question", ASK, meta=agent.meta))  # pyright: ignore[reportArgumentType]

            group.start_soon(ask, "first")
            first = await humans["first"].next()
            group.start_soon(ask, "second")
            second = await humans["second"].next()
            assert len(world.services.questions.open_cards("local")) == 2
            second.accept(q1="2")
            first.accept(q1="1")
        assert '"selected":["A"]' in answers["first"]
        assert '"selected":["B"]' in answers["second"]


@requirement("answer:own", "answer:order")
async def test_three_questions_keep_their_order_and_one_dismissed_stops_none(connect: Connect) -> None:
    human = Human()
    results: dict[str, CallToolResult] = {}
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:

            async def ask(name: str) -> None:
                arguments = {"questions": [{"id": name, "question": name}]}
                results[name] = await client.call_tool("ask_user_question", arguments)

            names = ["first", "second", "third"]
            for name in names:
                group.start_soon(ask, name)
                assert (await human.next()).message == name
            cards = world.services.questions.open_cards("local")
            assert [card.request.questions[0].question for card in cards] == names
            human.dialogs[0].cancel()
            human.dialogs[2].accept(q1="3")
            human.dialogs[1].accept(q1="2")
        assert code(results["first"]) == "ASK_CANCELLED"
        assert '"id":"second","selected":[],"custom":"2"' in text(results["second"])
        assert '"id":"third","selected":[],"custom":"3"' in text(results["third"])


def brings(reply: Any) -> Callable[[Card], Any]:
    return lambda card: reply


def answers(*given: Answer) -> Callable[[Card], Any]:
    return brings(list(given))


@requirement("answer:checked", "suite:can-fail")
@pytest.mark.parametrize(
    "reply",
    [
        brings(None),
        brings({}),
        brings([]),
        brings("A"),
        brings([{"id": "q", "selected": ["A"]}]),
        answers(Answer("other", ("A",))),
        answers(Answer("q", ("A",)), Answer("other", ("A",))),
        answers(Answer("q", ("A",)), Answer("q", ("A",))),
        answers(Answer("q", ("C",))),
        answers(Answer("q", ("a",))),
        answers(Answer("q", ("A", "B"))),
        answers(Answer("q", ("A", "A"))),
        answers(Answer("q")),
        answers(Answer("q", custom="  \n")),
        answers(Answer("q", ("A",), skipped=True)),
        answers(Answer("q", custom="words", skipped=True)),
    ],
)
async def test_what_is_no_answer_to_the_question_is_answer_invalid(connect: Connect, reply: Any) -> None:
    with anyio.fail_after(5):
        async with connect(providers=[ScriptedProvider(reply)]) as world, world.client() as client:
            result = await client.call_tool("ask_user_question", ASK)
            assert code(result) == "ANSWER_INVALID"
            assert world.services.questions.open_cards("local") == []


@requirement("answer:checked", "suite:can-fail")
@pytest.mark.parametrize(
    "content",
    [
        {},
        {"q1": ""},
        {"q1": "0"},
        {"q1": "3"},
        {"q1": "A"},
        {"q1": "approve "},
        {"q1": 1},
        {"q1": True},
        {"q1": ["1"]},
        {"q1": ["1", "2"]},
        {"q1": "other"},
        {"q1": "other", "q1_other": "  "},
        {"q1": "skip", "q1_other": "but"},
        {"q1_other": "words alone"},
        {"q1": "1", "q2": "1"},
        {"q1": "1", "surprise": "1"},
        {"q1": "1", "q1_other": ["x"]},
    ],
)
async def test_a_form_that_is_no_answer_is_answer_invalid(connect: Connect, content: dict[str, Any]) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(content)) as client:
            assert code(await client.call_tool("ask_user_question", ASK)) == "ANSWER_INVALID"
            assert world.services.questions.open_cards("local") == []


@requirement("answer:decline-cancel")
async def test_accept_of_nothing_decline_and_cancel_are_three_different_ends(connect: Connect) -> None:
    human = Human()
    ends: list[str] = []
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:

            async def ask() -> None:
                ends.append(code(await client.call_tool("ask_user_question", ASK)))

            for end in ("accept", "decline", "cancel"):
                count = len(ends)
                group.start_soon(ask)
                getattr(await human.next(), end)()
                while len(ends) == count:
                    await anyio.lowlevel.checkpoint()
        assert ends == ["ANSWER_INVALID", "ASK_DECLINED", "ASK_CANCELLED"]


@requirement("answer:shapes")
async def test_choices_skips_and_own_words_come_back_in_the_frozen_shape(connect: Connect) -> None:
    human = Human()
    shown: list[str] = []
    contents: list[dict[str, Any]] = [
        {"q1": "1", "q2": ["2", "1"], "q3": "more"},
        {"q1": "other", "q1_other": "mine", "q2": ["skip"], "q3": "more"},
        {"q1": "skip", "q2": [], "q2_other": "neither", "q3": " 多 "},
        {"q1": "2", "q1_other": "not B", "q2": ["1"], "q2_other": "and E", "q3": "x"},
    ]
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:

            async def ask() -> None:
                result = await client.call_tool("ask_user_question", BATCH)
                assert result.structured_content is not None
                shown.append(text(result))

            for content in contents:
                count = len(shown)
                group.start_soon(ask)
                (await human.next()).accept(content)
                while len(shown) == count:
                    await anyio.lowlevel.checkpoint()
        assert shown == [
            '{"answers":[{"id":"one","selected":["A"]},{"id":"many","selected":["C","D"]},'
            '{"id":"free","selected":[],"custom":"more"}],"via":"elicitation"}',
            '{"answers":[{"id":"one","selected":[],"custom":"mine"},{"id":"many","selected":[],"skipped":true},'
            '{"id":"free","selected":[],"custom":"more"}],"via":"elicitation"}',
            '{"answers":[{"id":"one","selected":[],"skipped":true},{"id":"many","selected":[],"custom":"neither"},'
            '{"id":"free","selected":[],"custom":" 多 "}],"via":"elicitation"}',
            '{"answers":[{"id":"one","selected":[],"custom":"not B"},{"id":"many","selected":["C"],"custom":"and E"},'
            '{"id":"free","selected":[],"custom":"x"}],"via":"elicitation"}',
        ]


@requirement("answer:next-provider", "answer:never-made-up")
async def test_a_client_without_forms_leaves_the_next_provider_or_nobody_to_ask(connect: Connect) -> None:
    from steersman.providers.elicitation import ElicitationProvider

    with anyio.fail_after(5):
        async with connect(providers=[ElicitationProvider()]) as world, world.client() as client:
            result = await client.call_tool("ask_user_question", ASK)
            assert code(result) == "NO_PROVIDER"
            assert "did not declare the elicitation capability" in text(result)
            next_one = choosing("B")
            world.services.questions.register(next_one)
            assert text(await client.call_tool("ask_user_question", ASK)).endswith('"via":"console"}')
            assert len(next_one.cards) == 1


@requirement("answer:next-provider")
@in_era("legacy")
async def test_a_client_that_declares_forms_and_refuses_them_leaves_the_next_provider_to_ask(connect: Connect) -> None:
    from mcp_types import METHOD_NOT_FOUND, ErrorData

    async def refuses(context: Any, params: Any) -> Any:
        return ErrorData(code=METHOD_NOT_FOUND, message="no dialog here")

    with anyio.fail_after(5):
        async with connect() as world, world.client(refuses) as client:
            assert "error -32601" in text(await client.call_tool("ask_user_question", ASK))
            world.services.questions.register(choosing("A"))
            assert '"via":"console"' in text(await client.call_tool("ask_user_question", ASK))
            assert world.services.questions.open_cards("local") == []


@requirement("intent:checked")
async def test_a_review_without_its_approving_option_or_its_plan_is_a_bad_intent() -> None:
    from steersman.clock import SystemClock
    from steersman.errors import UserQuestionError
    from steersman.journal import MemoryJournal
    from steersman.questions.requests import AskRequest
    from steersman.questions.service import UserQuestions
    from steersman.questions.types import Option, PlanReview, Question

    provider = choosing("Yes")
    questions = UserQuestions(None, clock=SystemClock(), journal=MemoryJournal(), providers=[provider])
    asked = (Question("q", "?", options=(Option("Yes"), Option("No"))),)
    for intent in (PlanReview("# A\nb", "Approve"), PlanReview("  ", "Yes")):
        with pytest.raises(UserQuestionError) as refusal:
            await questions.ask(AskRequest(asked, agent=None, intent=intent))
        assert refusal.value.code == "BAD_INTENT"
    assert not provider.cards
    assert await questions.ask(AskRequest(asked, agent=None, intent=PlanReview("# A\nb", "Yes")))
