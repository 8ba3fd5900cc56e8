"""Plan mode, and the review that ends it: approved is one thing only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult

from steersman.journal import PlanApproved, PlanModeSet, QuestionAsked
from steersman.questions.requests import Card
from steersman.questions.types import Answer
from steersman_client import Agent, Host
from tests.human import Human
from tests.providers import ScriptedProvider
from tests.requirements import requirement
from tests.world import Connect, code, error, in_era, text

pytestmark = pytest.mark.anyio

PLAN = "# Plan\n\n1. 测量 twice\n2. cut once\n"
APPROVE, KEEP = {"q1": "1"}, {"q1": "2"}


def digest(plan: str) -> str:
    return hashlib.sha256(plan.encode()).hexdigest()


async def review(agent: Agent, plan: str = PLAN) -> CallToolResult:
    return await agent.call_tool("exit_plan_mode", {"plan": plan})


async def in_plan_mode(agent: Agent) -> bool:
    listed = {line["agent_id"]: line for line in await agent.host.agents()}
    return listed[agent.id]["plan_mode"]


@requirement("plan:approved", "plan:set")
async def test_an_approval_names_the_digest_and_the_review_and_ends_plan_mode(connect: Connect) -> None:
    human = Human(APPROVE)
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            agent = await Host(client).enter(plan_mode=True)
            result = await review(agent)
            assert result.structured_content is not None
            assert result.structured_content["plan_sha256"] == digest(PLAN)
            [approved] = [event for event in world.events if isinstance(event, PlanApproved)]
            assert (approved.plan_sha256, approved.review_id) == (
                digest(PLAN),
                result.structured_content["review_id"],
            )
            assert list(result.structured_content) == ["approved", "plan_sha256", "review_id", "via"]
            assert human.dialogs[0].message.startswith(PLAN)
            assert not await in_plan_mode(agent)
            assert code(await review(agent)) == "NOT_IN_PLAN_MODE"


def brings(*answers: Answer) -> Callable[[Card], Any]:
    return lambda card: list(answers)


def brings_nothing(card: Card) -> Any:
    return None


def fails(card: Card) -> Any:
    raise RuntimeError("the page broke")


@requirement("plan:not-approved", "suite:can-fail")
@pytest.mark.parametrize(
    ("reply", "expected", "feedback"),
    [
        (brings(), "ANSWER_INVALID", None),
        (brings(Answer("plan", ("no",))), "ANSWER_INVALID", None),
        (brings(Answer("plan", ("approve ",))), "ANSWER_INVALID", None),
        (brings(Answer("plan", ("Approve ",))), "ANSWER_INVALID", None),
        (brings(Answer("plan", ("Approve", "Keep planning"))), "ANSWER_INVALID", None),
        (brings(Answer("plan", ("Keep planning",))), "KEEP_PLANNING", ""),
        (brings(Answer("plan", custom=" Approve \n{reason}")), "KEEP_PLANNING", " Approve \n{reason}"),
        (brings(Answer("plan", ("Approve",), custom="but test first")), "KEEP_PLANNING", "but test first"),
        (brings(Answer("plan", skipped=True)), "KEEP_PLANNING", ""),
        (brings_nothing, "ANSWER_INVALID", None),
        (fails, "INTERNAL_ERROR", None),
    ],
)
async def test_anything_but_approve_alone_leaves_plan_mode_on(
    connect: Connect, reply: Any, expected: str, feedback: str | None
) -> None:
    with anyio.fail_after(5):
        async with connect(providers=[ScriptedProvider(reply)]) as world, world.client() as client:
            agent = await Host(client).enter(plan_mode=True)
            found = error(await review(agent))
            assert (found["code"], found.get("feedback")) == (expected, feedback)
            assert feedback is None or feedback in found["message"]
            assert await in_plan_mode(agent)
            assert not any(isinstance(event, PlanApproved) for event in world.events)


@requirement("plan:not-approved", "suite:can-fail")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, "ANSWER_INVALID"),
        ({"q1": "Approve"}, "ANSWER_INVALID"),
        ({"q1": ["1"]}, "ANSWER_INVALID"),
        ({"q1": "2"}, "KEEP_PLANNING"),
        ({"q1": "1", "q1_other": "but slowly"}, "KEEP_PLANNING"),
        ({"q1": "other", "q1_other": "Approve"}, "KEEP_PLANNING"),
        ({"q1": "skip"}, "KEEP_PLANNING"),
    ],
)
async def test_no_other_form_approves(connect: Connect, content: dict[str, Any], expected: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(content)) as client:
            agent = await Host(client).enter(plan_mode=True)
            assert code(await review(agent)) == expected
            assert await in_plan_mode(agent)


@requirement("plan:invalid")
@pytest.mark.parametrize(
    "plan",
    ["", "  \n ", "#", "# ", "##", "# Title", "# Title\n\n  \n", "Title\n\ntext", "\n# Title\ntext", "#Title\ntext"],
)
async def test_an_empty_plan_is_invalid_before_the_human_is_asked(connect: Connect, plan: str) -> None:
    human = Human(APPROVE)
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            agent = await Host(client).enter(plan_mode=True)
            assert code(await review(agent, plan)) == "INVALID_PLAN"
            assert not human.dialogs
            assert await in_plan_mode(agent)


@requirement("plan:not-in-plan-mode")
async def test_outside_plan_mode_nothing_is_reviewed_whatever_the_plan(connect: Connect) -> None:
    human = Human(APPROVE)
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            agent = await Host(client).enter()
            for plan in (PLAN, ""):
                assert code(await review(agent, plan)) == "NOT_IN_PLAN_MODE"
            assert not human.dialogs


@requirement("plan:prompt")
async def test_the_prompt_enters_plan_mode_and_never_leaves_it(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(APPROVE)) as client:
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["plan"]
            agent = await Host(client).enter()
            for _ in range(2):
                prompt = await client.get_prompt("plan", meta=agent.meta)
                assert "exit_plan_mode" in prompt.model_dump_json()
                assert await in_plan_mode(agent)
            await agent.exit()
            with pytest.raises(MCPError, match="CALLER_NOT_LIVE") as dead:
                await client.get_prompt("plan", meta=agent.meta)
            assert dead.value.error.code == 4001
            with pytest.raises(MCPError, match="Unknown prompt"):
                await client.get_prompt("build")
            # Without identity it is the connection's root that plans.
            await client.get_prompt("plan")
            assert not (await client.call_tool("exit_plan_mode", {"plan": PLAN})).is_error


@requirement("plan:set")
async def test_the_host_turns_plan_mode_on_and_off_for_one_agent(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent, other = await Host(client).enter(), await Host(client).enter()
            results = [await agent.set_plan_mode(active) for active in (True, True, False, False)]
            assert results == ["committed", "noop", "committed", "noop"]
            await agent.set_plan_mode(True)
            assert (await in_plan_mode(agent), await in_plan_mode(other)) == (True, False)
            switches = [event.active for event in world.events if isinstance(event, PlanModeSet)]
            assert switches == [True, False, True]


@requirement("plan:interrupted")
@in_era("legacy")
async def test_an_interrupted_review_leaves_plan_mode_on_and_the_next_one_works(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter(plan_mode=True)
            with anyio.CancelScope() as scope:
                group.start_soon(cancel_when_shown, human, scope)
                await review(agent)
            assert scope.cancelled_caught
            await human.dialogs[0].withdrawn.wait()
            assert await in_plan_mode(agent)
            group.start_soon(approve_when_shown, human)
            assert not (await review(agent)).is_error


async def cancel_when_shown(human: Human, scope: anyio.CancelScope) -> None:
    await human.next()
    scope.cancel()


async def approve_when_shown(human: Human) -> None:
    (await human.next()).accept(APPROVE)


@requirement("plan:two-at-once")
async def test_two_plans_under_review_at_once_each_get_their_own_digest(connect: Connect) -> None:
    human = Human()
    digests: dict[str, str] = {}
    plans = ["# One\nthis", "# Two\nthat"]
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:

            async def present(plan: str) -> None:
                agent = await Host(client).enter(plan_mode=True)
                result = await review(agent, plan)
                digests[plan] = (result.structured_content or {})["plan_sha256"]

            for plan in plans:
                group.start_soon(present, plan)
                assert (await human.next()).message.startswith(plan)
            human.dialogs[1].accept(APPROVE)
            human.dialogs[0].accept(APPROVE)
        assert digests == {plan: digest(plan) for plan in plans}


@requirement("plan:two-at-once")
async def test_two_plans_of_one_agent_under_review_at_once_are_both_decided(connect: Connect) -> None:
    human = Human()
    digests: list[str] = []
    plans = ["# One\nthis", "# Two\nthat"]
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter(plan_mode=True)

            async def present(plan: str) -> None:
                result = await review(agent, plan)
                structured: dict[str, Any] = result.structured_content or {}
                digests.append(structured["plan_sha256"])

            for plan in plans:
                group.start_soon(present, plan)
                await human.next()
            for number in range(len(plans)):
                human.dialogs[number].accept(APPROVE)
                while len(digests) <= number:
                    await anyio.lowlevel.checkpoint()
        assert digests == [digest(plan) for plan in plans]


@requirement("plan:always")
async def test_where_plan_mode_is_always_on_every_root_stays_in_it_also_approved(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(plan_mode="always") as world, world.client(Human(APPROVE)) as client:
            agent = await Host(client).enter()
            for _ in range(2):
                assert not (await review(agent)).is_error
                assert await in_plan_mode(agent)


@requirement("plan:lost-reply")
@in_era("modern")
async def test_an_approval_whose_reply_was_lost_is_given_again_once_in_effect(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            agent = await Host(client).enter(plan_mode=True)
            meta: Any = agent.meta
            plan = {"plan": PLAN}
            asked = await client.session.call_tool("exit_plan_mode", plan, meta=meta, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            answer: Any = {"answers": {"action": "accept", "content": APPROVE}}

            async def answered(plan: dict[str, Any]) -> CallToolResult:
                return await client.session.call_tool(
                    "exit_plan_mode", plan, input_responses=answer, request_state=asked.request_state, meta=meta
                )

            approved = await answered(plan)
            assert not approved.is_error
            await agent.set_plan_mode(True)
            again = await answered(plan)
            assert again == approved
            # The approval took effect once: plan mode, turned on since, stays on.
            assert await in_plan_mode(agent)
            assert code(await answered({"plan": PLAN + "3. and more"})) == "ANSWER_INVALID"


@requirement("plan:lost-reply")
async def test_a_review_retried_under_its_id_gets_the_first_decision(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(APPROVE)) as client:
            agent = await Host(client).enter(plan_mode=True)
            meta = {"claudecode/toolUseId": "t1"}
            first = await agent.call_tool("exit_plan_mode", {"plan": PLAN}, meta=meta)
            again = await agent.call_tool("exit_plan_mode", {"plan": PLAN}, meta=meta)
            assert again == first
            assert '"approved":true' in text(again)
            assert len([event for event in world.events if isinstance(event, QuestionAsked)]) == 1
