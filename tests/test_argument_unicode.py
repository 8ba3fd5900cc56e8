"""Half a surrogate pair is no character: JSON lets it in, UTF-8 does not, and neither do we."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import anyio
import httpx2
import pytest
from inline_snapshot import snapshot

from steersman.contract.arguments import parse_ask, parse_plan, parse_steer
from tests.arguments import PREFIX, labels, one, refusal
from tests.requirements import requirement
from tests.world import Connect, Transport, World, code

pytestmark = pytest.mark.anyio


@requirement("arguments:unicode")
def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    assert refusal(labels("A", "\ud800")) == snapshot(
        "at questions[0].options[1].label, found half of a surrogate pair, which is no character; allowed is "
        "valid Unicode text."
    )
    assert refusal(one(question="Which \udc00?")) == snapshot(
        "at questions[0].question, found half of a surrogate pair, which is no character; allowed is valid "
        "Unicode text."
    )
    assert refusal(one(**{"\ud800": 1})) == snapshot(
        'at questions[0]["\\ud800"], found half of a surrogate pair, which is no character; allowed is valid '
        "Unicode text."
    )
    assert refusal({"plan": "# Plan\n\n\udfff"}, parse_plan) == snapshot(
        "at plan, found half of a surrogate pair, which is no character; allowed is valid Unicode text."
    )
    assert refusal({"message": "\ud83d", "subagent_id": "a"}, parse_steer) == snapshot(
        "at message, found half of a surrogate pair, which is no character; allowed is valid Unicode text."
    )
    assert refusal({"questions": r'[{"question": "\ud800"}]'}) == snapshot(
        "at questions[0].question, found half of a surrogate pair, which is no character; allowed is valid "
        "Unicode text."
    )


@requirement("arguments:unicode")
def test_a_whole_surrogate_pair_in_json_text_is_one_character() -> None:
    asked = parse_ask({"questions": r'[{"question": "\ud83d\ude00?"}]'})
    assert asked.questions[0].question == "\U0001f600?"


@requirement("arguments:unicode")
def test_half_a_pair_that_json_text_hides_is_refused_too() -> None:
    refusal({"questions": '[{"id": "\ud800", "id": "q", "question": "Which?"}]'})


@requirement("arguments:unicode")
def test_the_path_to_half_a_pair_is_cut_and_spelled_in_ascii() -> None:
    told = refusal({"plan": {"\x1b[2J\u202e" + "x" * 5000: "\ud800"}}, parse_plan)
    assert told.isascii()
    assert told.isprintable()
    assert len(told) < 500


@requirement("arguments:unicode")
def test_the_search_for_half_a_pair_costs_no_more_than_the_arguments() -> None:
    """A long name above a long list: spelling a path for each element would take their product in memory."""
    arguments: dict[str, Any] = {"plan": "\ud800", "x" * 20_000: [0] * 5_000}
    tracemalloc.start()
    try:
        refusal(arguments, parse_plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


# --- over modern HTTP, where the SDK lets them through (stdio and legacy HTTP do not) -------------------------------


modern_http = pytest.mark.parametrize("transport", [Transport("http", "modern")], ids=["http-modern"], indirect=True)


async def call_raw(world: World, tool: str, arguments: str) -> dict[str, Any]:
    """The result of a call whose arguments are sent as they are written: the SDK's client would not send them."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Authorization": f"Bearer {world.default_token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    params = f'{{"name": "{tool}", "arguments": {arguments}, "_meta": {json.dumps(meta)}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    async with httpx2.AsyncClient() as http:
        reply = await http.post(world.url, content=body, headers=headers)
    assert reply.status_code == 200
    return reply.json()["result"]


@requirement("arguments:unicode")
@modern_http
@pytest.mark.parametrize(
    ("tool", "written"),
    [
        ("ask_user_question", r'{"questions": [{"id": "q", "question": "\ud800"}]}'),
        ("ask_user_question", r'{"questions": [{"id": "q", "question": "?", "\udfff": 1}]}'),
        ("ask_user_question", r'{"\ud800": []}'),
        ("exit_plan_mode", r'{"plan": "# Plan\n\n\udc00"}'),
        ("steer_subagent", r'{"subagent_id": "\ud83d", "message": "Turn."}'),
        ("steer_subagent", r'{"subagent_id": "a", "message": "Turn.", "mode": "\ud83d"}'),
    ],
)
async def test_half_a_pair_gets_a_tool_error_and_the_server_serves_on(
    connect: Connect, tool: str, written: str
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            result = await call_raw(world, tool, written)
            assert result["isError"]
            assert result["content"][0]["text"].startswith(PREFIX)
            assert "half of a surrogate pair" in result["content"][0]["text"]
            assert code(await client.call_tool("exit_plan_mode", {"plan": "# A\nb"})) == "NOT_IN_PLAN_MODE"


@requirement("arguments:unicode")
@modern_http
async def test_half_a_pair_that_json_text_hides_is_no_fault_of_ours(connect: Connect) -> None:
    hidden = r"[{\"id\": \"\ud800\", \"id\": \"q\", \"question\": \"Which?\"}]"
    with anyio.fail_after(5):
        async with connect() as world:
            result = await call_raw(world, "ask_user_question", f'{{"questions": "{hidden}"}}')
            assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENTS"
