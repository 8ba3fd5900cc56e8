"""Every code that a tool call can reach, over the wire; and what a fault of ours looks like from outside."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from steersman.contract.files import load
from steersman.errors import UserQuestionError
from steersman.questions.requests import Card
from steersman_client import Host
from tests.human import Human
from tests.providers import ScriptedProvider
from tests.requirements import requirement
from tests.world import Connect, Transport, code, error, in_era, text

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
PLAN = {"plan": "# Plan\nDo it."}

NOT_BY_TOOLS = {"AGENT_LIVE", "RESUME_KEY_REQUIRED", "AGENT_FINISHED", "BAD_INTENT"}
"""Codes that host methods reach, and one that only callers in Python can."""


def refuses_with_reason(card: Card) -> Any:
    raise UserQuestionError("ASK_DECLINED", reason="Ask me on Monday {reason}.")


def breaks(card: Card) -> Any:
    raise RuntimeError("the answer was hunter2")


@requirement("errors:all")
@in_era("legacy")
async def test_every_code_is_reached_over_the_wire_with_its_text_in_both_parts(connect: Connect) -> None:
    """Legacy, because there a test can withdraw and time out a call while it waits on the wire."""
    reached: dict[str, str] = {}

    def note(result: Any) -> None:
        found = error(result)
        reached[found["code"]] = f"{found['name']}: {found['message']}"

    human = Human()
    with anyio.fail_after(5):
        async with connect(ask_timeout=60.0) as world, world.client(human) as client, world.client() as formless:
            host = Host(client)
            agent = await host.enter()
            child = await host.enter(owner=agent, label="child", agent_id="child-1")
            ask, plan = "ask_user_question", "exit_plan_mode"
            note(await agent.call_tool(ask, {"question": 1}))
            note(await agent.call_tool(ask, {"questions": [{"question": "?"}] * 33}))
            note(await agent.call_tool(ask, {"questions": []}))
            note(await child.call_tool(ask, ASK))
            note(await client.call_tool(ask, ASK))
            note(await agent.call_tool(plan, PLAN))
            note(await agent.call_tool("steer_subagent", {"subagent_id": "x", "message": "y"}))
            once = await host.enter(owner=agent, mode="one-shot")
            await once.next(turn=0, at="begin", after=0)
            await once.next(turn=1, at="end", after=0)
            note(await agent.call_tool("steer_subagent", {"subagent_id": once.id, "message": "y"}))
            await once.exit()
            note(await agent.call_tool("steer_subagent", {"subagent_id": once.id, "message": "y"}))
            note(await formless.call_tool(ask, ASK, meta=agent.meta))
            await agent.set_plan_mode(True)
            note(await agent.call_tool(plan, {"plan": "#"}))

            async def respond(action: str, content: dict[str, Any] | None = None) -> None:
                dialog = await human.next()
                match action:
                    case "accept":
                        dialog.accept(content)
                    case "decline":
                        dialog.decline()
                    case "cancel":
                        dialog.cancel()
                    case "wait":
                        await world.clock.until_sleepers()
                        world.clock.advance(61)
                    case _:
                        world.services.questions.withdraw_all()

            async with anyio.create_task_group() as group:
                group.start_soon(respond, "accept", {"q1": "other", "q1_other": "more {detail}"})
                note(await agent.call_tool(plan, PLAN))
                group.start_soon(respond, "accept", dict[str, Any]())
                note(await agent.call_tool(ask, ASK))
                group.start_soon(respond, "decline")
                note(await agent.call_tool(ask, ASK))
                group.start_soon(respond, "cancel")
                note(await agent.call_tool(ask, ASK))
                group.start_soon(respond, "wait")
                note(await agent.call_tool(ask, ASK))
                group.start_soon(respond, "withdraw")
                note(await agent.call_tool(ask, ASK))
    assert reached.keys() == load("errors")["codes"].keys() - NOT_BY_TOOLS - {"INTERNAL_ERROR", "SERVER_UNAVAILABLE"}
    assert reached == snapshot(
        {
            "INVALID_ARGUMENTS": "ToolError: The arguments do not fit: found nothing under 'questions'; allowed is an object that has it.",
            "LIMIT_EXCEEDED": "ToolError: The call is over a limit: questions holds 33 questions; allowed are 32.",
            "EMPTY_QUESTIONS": "UserQuestionError: The list of questions is empty. Nothing was asked.",
            "DELEGATED_CALLER": "UserQuestionError: Human interaction is unavailable to an agent that another agent owns. Put the unresolved question or decision into the final result; the owner takes it from there.",
            "CALLER_NOT_LIVE": "UserQuestionError: No live agent stands behind this call: it names none, or its agent has ended or was replaced. Nothing was done. What the call was for belongs in the agent's final result.",
            "NOT_IN_PLAN_MODE": "PlanModeError: Plan mode is not on, so there is no plan to review. The human or the host turns it on.",
            "UNKNOWN_SUBAGENT": 'SubagentError: The caller has no direct subagent of that id. Its direct subagents: [{"id":"child-1","label":"child","status":"live"}]',
            "SUBAGENT_CLOSING": "SubagentError: The subagent's host is taking it down. The message was not accepted.",
            "SUBAGENT_FINISHED": "SubagentError: The subagent has finished its one task and takes no more messages. Nothing was started.",
            "NO_PROVIDER": "UserQuestionError: Nothing can reach the human: this host did not declare the elicitation capability, and no terminal in which the human runs `steersman answer` is open. The question was not asked and nothing was decided.",
            "INVALID_PLAN": "PlanModeError: The plan is not one that can be reviewed: its first line is not a # heading with a title. The human was not asked, and plan mode stays on.",
            "KEEP_PLANNING": "PlanModeError: The human did not approve the plan. Plan mode stays on. Their words: more {detail}",
            "ANSWER_INVALID": "UserQuestionError: What came back does not answer what was asked. Found was no choice for question 1. It was not used, and nothing was decided.",
            "ASK_DECLINED": "UserQuestionError: The human refused to answer. Nothing was decided.",
            "ASK_CANCELLED": "UserQuestionError: The human dismissed the question without an answer. Nothing was decided.",
            "ASK_TIMED_OUT": "UserQuestionError: No answer came within the time that this server allows. The question was withdrawn; nothing was decided.",
            "ASK_ABORTED": "UserQuestionError: The question was withdrawn before it was answered: its call was cancelled, or its agent, its host or the server went away. Nothing was decided.",
        }
    )


@requirement("errors:all")
async def test_the_humans_reason_for_refusing_stands_in_text_and_structure(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(providers=[ScriptedProvider(refuses_with_reason)]) as world, world.client() as client:
            found = error(await client.call_tool("ask_user_question", ASK))
            assert found["reason"] == "Ask me on Monday {reason}."
            assert found["message"].endswith("Their reason: Ask me on Monday {reason}.")


@requirement("errors:internal")
async def test_a_fault_of_ours_shows_a_reference_that_stands_in_the_log_and_nothing_else(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(5):
        async with connect(providers=[ScriptedProvider(breaks)]) as world, world.client() as client:
            with caplog.at_level(logging.ERROR):
                result = await client.call_tool("ask_user_question", ASK)
            found = error(result)
            assert (found["name"], found["code"]) == ("ToolError", "INTERNAL_ERROR")
            assert "hunter2" not in result.model_dump_json()
            [record] = [record for record in caplog.records if record.name.startswith("steersman")]
            assert found["reference"] == vars(record)["reference"]
            assert "hunter2" not in json.dumps(vars(record), default=str)
            assert code(await client.call_tool("exit_plan_mode", PLAN)) == "NOT_IN_PLAN_MODE"


@requirement("errors:unknown-tool")
@pytest.mark.parametrize("name", ["", "ask", "ask_user_question ", "ask_user_question\x00", "提问", "x" * 10_000])
async def test_an_unknown_tool_is_an_orderly_json_rpc_error(connect: Connect, name: str, transport: Transport) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            with pytest.raises(MCPError) as refusal:
                await client.call_tool(name, {})
            assert refusal.value.error.code in (-32602, -32600, -32020)
            assert len((await client.list_tools()).tools) == 3


@requirement("answer:never-made-up")
async def test_a_host_that_cancels_every_form_by_itself_gets_no_answer(connect: Connect) -> None:
    async def headless(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="cancel")

    with anyio.fail_after(5):
        async with connect(plan_mode="always") as world, world.client(headless) as client:
            assert text(await client.call_tool("ask_user_question", ASK)).startswith("ASK_CANCELLED")
            assert text(await client.call_tool("exit_plan_mode", PLAN)).startswith("ASK_CANCELLED")
