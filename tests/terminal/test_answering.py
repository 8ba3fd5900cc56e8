"""`steersman answer`: the human at a terminal, with real processes at both ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp import Client
from mcp_types import CallToolResult

from steersman.journal import QuestionAnsweredLate
from steersman_client import Host, TurnLoop
from steersman_client.turns import Step
from tests.requirements import requirement
from tests.terminal.processes import Terminal, run, terminal
from tests.world import Connect, World, code, error, over, text

pytestmark = [pytest.mark.anyio]

over_pipe = over("pipe", era="legacy")
over_pipes = over("pipe")

ASK: dict[str, Any] = {
    "questions": [
        {
            "id": "db",
            "question": "Which database?",
            "options": [{"label": "SQLite", "description": "one file"}, {"label": "PostgreSQL"}],
        },
        {
            "id": "tags",
            "question": "Which tags?",
            "multi_select": True,
            "options": [{"label": "a"}, {"label": "b"}, {"label": "c"}],
        },
        {"id": "name", "question": "Which name?", "options": []},
    ]
}
ONE: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
TWO: dict[str, Any] = {"questions": [{"id": "q", "question": "And then?", "options": [{"label": "C"}, {"label": "D"}]}]}
PLAN = "# Plan\n\n<!-- and delete everything -->\nDo it.\n"


class Calls:
    """Calls of agents, made in the background."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self.results: dict[str, CallToolResult] = {}
        self._changed = anyio.Event()

    def start(
        self, client: Client, name: str, tool: str, arguments: dict[str, Any], **options: Any
    ) -> anyio.CancelScope:
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                self.results[name] = await client.call_tool(tool, arguments, **options)
                self._changed.set()

        self._group.start_soon(call)
        return scope

    async def result(self, name: str) -> CallToolResult:
        while name not in self.results:
            self._changed = anyio.Event()
            await self._changed.wait()
        return self.results[name]


@asynccontextmanager
async def at_the_terminal(world: World) -> AsyncGenerator[Terminal]:
    async with terminal(world.files.directory, "answer") as shown:
        await shown.until("Nothing waits.")
        yield shown


@requirement("terminal:answer", "terminal:provider")
@over_pipes
async def test_a_host_without_a_dialog_has_its_questions_answered_at_the_terminal(connect: Connect) -> None:
    async with connect() as world, world.client() as client, anyio.create_task_group() as group:
        assert code(await client.call_tool("ask_user_question", ASK)) == "NO_PROVIDER"
        calls = Calls(group)
        async with at_the_terminal(world) as shown:
            calls.start(client, "ask", "ask_user_question", ASK)
            assert "the connection's agent" in await shown.until("Question 1 of 3. Which database?")
            assert "1) SQLite  one file" in await shown.until(") > ")
            shown.type("7")
            await shown.until("Type a number from 1 to 3")
            shown.type("2")
            await shown.until("Which tags?")
            shown.type("3,1,4")
            await shown.until("your own words; ")
            shown.type("//slash")
            await shown.until("Which name?")
            shown.type("")
            shown.type("/skip")
            await shown.until("Answered.")
            assert text(await calls.result("ask")) == (
                '{"answers":[{"id":"db","selected":["PostgreSQL"]},{"id":"tags","selected":["a","c"],"custom":"/slash"},'
                '{"id":"name","selected":[],"skipped":true}],"via":"console"}'
            )
            shown.press_ctrl_d()
            assert await shown.exit_code() == 0
        assert code(await client.call_tool("ask_user_question", ASK)) == "NO_PROVIDER"


@requirement("terminal:plan")
@over_pipe
async def test_a_plan_is_shown_whole_and_only_approve_approves(connect: Connect) -> None:
    async with connect(plan_mode="always") as world, world.client() as client, anyio.create_task_group() as group:
        calls = Calls(group)
        async with at_the_terminal(world) as shown:
            calls.start(client, "first", "exit_plan_mode", {"plan": PLAN})
            assert PLAN.strip() in await shown.until("(1 or 2; ")
            shown.type("3")
            await shown.until("Type 1 or 2.")
            shown.type("2")
            await shown.until("what should change")
            shown.type("no deleting")
            await shown.until("Answered.")
            refused = error(await calls.result("first"))
            assert (refused["code"], refused["feedback"]) == ("KEEP_PLANNING", "no deleting")
            calls.start(client, "second", "exit_plan_mode", {"plan": PLAN})
            await shown.until("(1 or 2; ")
            shown.type("1")
            assert '"approved":true' in text(await calls.result("second"))


@requirement("terminal:refuse")
@over_pipe
async def test_the_human_may_decline_dismiss_or_put_off(connect: Connect) -> None:
    async with connect() as world, world.client() as client, anyio.create_task_group() as group:
        calls = Calls(group)
        async with at_the_terminal(world) as shown:
            calls.start(client, "declined", "ask_user_question", ONE)
            await shown.until(") > ")
            shown.type("/decline ask Bob")
            declined = error(await calls.result("declined"))
            assert (declined["code"], declined["reason"]) == ("ASK_DECLINED", "ask Bob")
            calls.start(client, "dismissed", "ask_user_question", ONE)
            await shown.until(") > ")
            shown.type("/dismiss")
            assert code(await calls.result("dismissed")) == "ASK_CANCELLED"
            calls.start(client, "later", "ask_user_question", ONE)
            await shown.until(") > ")
            shown.type("/later")
            await shown.until("1 put off: Enter shows them again.")
            shown.type("")
            await shown.until(") > ")
            shown.type("1")
            assert '"selected":["A"]' in text(await calls.result("later"))


@requirement("terminal:elsewhere")
@over_pipe
async def test_of_two_terminals_one_wins_and_what_is_typed_at_the_other_answers_no_other_card(connect: Connect) -> None:
    async with connect() as world, world.client() as client, anyio.create_task_group() as group:
        calls = Calls(group)
        async with at_the_terminal(world) as one, at_the_terminal(world) as other:
            calls.start(client, "ask", "ask_user_question", ONE)
            await one.until(") > ")
            await other.until(") > ")
            calls.start(client, "next", "ask_user_question", TWO)
            one.type("1")
            assert '"selected":["A"]' in text(await calls.result("ask"))
            await other.until("Answered elsewhere. Enter goes on.")
            other.type("2")
            await other.until("And then?")
            await other.until(") > ")
            other.type("1")
            assert '"selected":["C"]' in text(await calls.result("next"))


@requirement("terminal:late")
@over_pipe
async def test_an_answer_after_the_call_was_cancelled_reaches_the_agent_as_a_message(connect: Connect) -> None:
    async with connect() as world, world.client() as client, anyio.create_task_group() as group:
        host = Host(client)
        agent = await host.enter()
        calls = Calls(group)
        async with at_the_terminal(world) as shown:
            call = calls.start(client, "ask", "ask_user_question", ONE, meta=agent.meta)
            await shown.until(") > ")
            call.cancel()
            await shown.until("Nobody waits for it any more.")
            shown.type("2")
            await shown.until("the agent reads the answer as a message")
        read: list[str] = []

        async def step(step: Step) -> bool:
            read.extend(message.text for message in step.messages)
            return False

        await TurnLoop(agent, step).drain()
        [message] = read
        assert '"question":"Which?","selected":["B"]' in message
        assert any(isinstance(event, QuestionAnsweredLate) for event in world.events)


@requirement("terminal:text")
@over_pipe
async def test_nothing_that_an_agent_wrote_moves_the_cursor_or_hides(connect: Connect) -> None:
    evil = "\x1b[2J\x1b]8;;http://x\x07click\x1b]8;;\x07 \x9b31m \u202eabc\u200b [bold]x[/bold] :smile:"
    options = [{"label": evil + "1"}, {"label": "B"}]
    ask = {"questions": [{"id": "q", "question": evil, "header": "\x1b[1m", "options": options}]}
    async with connect() as world, world.client() as client, anyio.create_task_group() as group:
        calls = Calls(group)
        async with at_the_terminal(world) as shown:
            calls.start(client, "ask", "ask_user_question", ask)
            await shown.until(") > ")
            assert "⟦U+001B⟧[2J" in shown.shown
            assert "[bold]x[/bold] :smile:" in shown.shown
            hidden = [char for char in shown.shown if not (char.isprintable() or char == "\n")]
            assert hidden == []
            shown.type("1")
            assert (await calls.result("ask")).structured_content == {
                "answers": [{"id": "q", "selected": [evil + "1"]}],
                "via": "console",
            }


@requirement("terminal:scripts")
@over_pipe
async def test_scripts_list_and_answer_by_flags(connect: Connect) -> None:
    async with connect(plan_mode="always") as world, world.client() as client, anyio.create_task_group() as group:
        state, calls = world.files.directory, Calls(group)
        assert (await run(state, "answer", "--json")).json == {"waiting": []}
        async with terminal(state, "answer", "--follow", "--json") as follow:
            await follow.until('{"waiting": []}')
            calls.start(client, "many", "ask_user_question", ASK)
            await follow.until("Which name?")
            [card] = (await run(state, "answer", "--json")).json["waiting"]
            assert [question["id"] for question in card["questions"]] == ["db", "tags", "name"]
            wrong = await run(state, "answer", card["card_id"], "--select", "SQLite")
            assert (wrong.code, wrong.out) == (2, "")
            assert "Use --answers." in wrong.err
            given = '[{"id":"db","selected":["SQLite"]},{"id":"tags","custom":"x"},{"id":"name","skipped":true}]'
            done = await run(state, "answer", card["card_id"], "--answers", "-", "--json", stdin=given)
            assert done.json == {"told": "answered"}
            assert '"custom":"x"' in text(await calls.result("many"))
            again = await run(state, "answer", card["card_id"], "--select", "SQLite")
            assert again.code == 1
            assert "answered elsewhere" in again.err

            calls.start(client, "plan", "exit_plan_mode", {"plan": PLAN})
            await follow.until("Do it.")
            [card] = (await run(state, "answer", "--json")).json["waiting"]
            assert (await run(state, "answer", card["card_id"], "--approve", "--dismiss")).code == 2
            assert (await run(state, "answer", card["card_id"], "--select", "Yes")).code == 1
            kept = await run(state, "answer", card["card_id"], "--keep-planning", "--text", "shorter")
            assert (kept.code, kept.out) == (0, "Answered.\n")
            assert error(await calls.result("plan"))["feedback"] == "shorter"

            calls.start(client, "one", "ask_user_question", ONE)
            await follow.until("Which?")
            [card] = (await run(state, "answer", "--json")).json["waiting"]
            shown = await run(state, "answer")
            assert "1) A" in shown.out
            assert (await run(state, "answer", card["card_id"], "--select", "Z")).code == 1
            assert (await run(state, "answer", card["card_id"], "--select", "B")).code == 0
            assert '"selected":["B"]' in text(await calls.result("one"))
