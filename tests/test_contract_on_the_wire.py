"""The contract as a client sees it: the same list for everybody, each time, in every revision and process."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult, Tool
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from steersman.canonical import canonical
from steersman.contract.files import load, tools
from steersman.testing import assert_contract
from steersman_client import Agent, Host
from tests.human import Human
from tests.json_schema import JsonSchema
from tests.requirements import requirement
from tests.world import Connect, Era, in_era

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {
    "questions": [
        {"id": "one", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]},
        {"id": "many", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "multi_select": True},
        {"id": "words", "question": "What?"},
    ]
}
PLAN = {"plan": "# Plan\n\nDo it."}
STEER = {"subagent_id": "nobody", "message": "Turn left."}


def as_json(listed: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]


async def listed_by(client: Client, agent: Agent | None = None) -> str:
    meta: Any = agent.meta if agent is not None else None
    return canonical(as_json((await client.list_tools(meta=meta)).tools))


@requirement("contract:stable-list")
async def test_a_hundred_lists_are_the_contract(connect: Connect) -> None:
    seen: list[str] = []
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:

            async def list_ten_times() -> None:
                seen.extend([await listed_by(client) for _ in range(10)])

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(list_ten_times)
    assert len(seen) == 100
    assert set(seen) == {canonical(tools())}


@requirement("contract:stable-list")
@pytest.mark.parametrize("policy", ["tracked", "always"])
async def test_root_and_child_in_plan_mode_and_out_of_it_see_the_same_list(connect: Connect, policy: str) -> None:
    with anyio.fail_after(5):
        async with connect(plan_mode=policy) as world, world.client(Human()) as client:
            seen = {await listed_by(client)}
            host = Host(client)
            async with host.agent() as root, host.agent(owner=root) as child:
                for agent in (root, child):
                    for active in (False, True):
                        await agent.set_plan_mode(active)
                        seen.add(await listed_by(client, agent))
            seen.add(await listed_by(client, child))
            assert seen == {canonical(tools())}


@requirement("contract:revisions")
@in_era("legacy")
@pytest.mark.parametrize("revision", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_every_handshake_revision_gets_the_whole_contract(
    connect: Connect, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            assert client.protocol_version == revision
            assert {await listed_by(client) for _ in range(3)} == {canonical(tools())}


# --- processes ------------------------------------------------------------------------------------------------------

SERVE = """
import anyio
from mcp.server.stdio import stdio_server
from steersman.server import make_server, stream_lifespan
from steersman.services import make_services

async def main():
    services = make_services([])
    server = make_server(stream_lifespan(services, realm="local"))
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
CLIENT = {"name": "test", "version": "0"}


def message(method: str, params: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode() + b"\n"


def raw_list(era: Era, hash_seed: str) -> bytes:
    """The line with which a new server process answers `tools/list`, as it is."""
    modern = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SERVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        if era == "legacy":
            server.stdin.write(message("initialize", hello, id=1))
            server.stdin.flush()
            assert json.loads(server.stdout.readline())["result"]["protocolVersion"] == "2025-11-25"
            server.stdin.write(message("notifications/initialized", {}))
            server.stdin.write(message("tools/list", {}, id=2))
        else:
            server.stdin.write(message("tools/list", {"_meta": modern}, id=2))
        server.stdin.flush()
        return server.stdout.readline()


@requirement("contract:processes")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_processes_send_the_same_bytes_whatever_their_hash_seed(era: Era) -> None:
    lines = {raw_list(era, seed) for seed in ("0", "1", "random")}
    [line] = lines
    assert canonical(json.loads(line)["result"]["tools"]) == canonical(tools())
    # What a model reads stands in the order of the files, and raw.
    for tool, sent in zip(tools(), json.loads(line)["result"]["tools"], strict=True):
        for part in ("inputSchema", "outputSchema"):
            properties = tool[part]["properties"]
            assert json.dumps(sent[part]["properties"]) == json.dumps(properties)


# --- assert_contract ------------------------------------------------------------------------------------------------


@requirement("contract:assert")
async def test_assert_contract_takes_what_a_client_lists(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            listed = (await client.list_tools()).tools
            assert_contract(listed)
            assert_contract(as_json(listed))


def _change_a_word(listed: list[dict[str, Any]]) -> None:
    listed[0]["description"] = listed[0]["description"].replace("waits", "Waits", 1)


def _swap_two(listed: list[dict[str, Any]]) -> None:
    listed[0], listed[1] = listed[1], listed[0]


def _drop_one(listed: list[dict[str, Any]]) -> None:
    del listed[2]


def _add_a_tool(listed: list[dict[str, Any]]) -> None:
    listed.append({**listed[0], "name": "more"})


def _repeat_a_tool(listed: list[dict[str, Any]]) -> None:
    listed.append(listed[0])


def _add_a_property(listed: list[dict[str, Any]]) -> None:
    listed[1]["inputSchema"]["properties"]["more"] = {"type": "string"}


def _drop_a_property(listed: list[dict[str, Any]]) -> None:
    del listed[2]["inputSchema"]["properties"]["mode"]


def _reorder_a_list(listed: list[dict[str, Any]]) -> None:
    listed[2]["inputSchema"]["properties"]["mode"]["enum"].reverse()


def _turn_a_hint(listed: list[dict[str, Any]]) -> None:
    listed[0]["annotations"]["readOnlyHint"] = 1


def _drop_the_version(listed: list[dict[str, Any]]) -> None:
    del listed[0]["_meta"]["steersman/contract"]


@requirement("contract:assert")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_change_a_word, "ask_user_question.description is "),
        (_swap_two, "the tools are ['exit_plan_mode', 'ask_user_question', 'steer_subagent']"),
        (_drop_one, "the tools are ['ask_user_question', 'exit_plan_mode'], the contract has "),
        (_add_a_tool, "the tools are ['ask_user_question', 'exit_plan_mode', 'steer_subagent', 'more']"),
        (_repeat_a_tool, "'steer_subagent', 'ask_user_question']"),
        (_add_a_property, "exit_plan_mode.inputSchema.properties.more is not in the contract"),
        (_drop_a_property, "steer_subagent.inputSchema.properties.mode is missing"),
        (_reorder_a_list, "steer_subagent.inputSchema.properties.mode.enum is "),
        (_turn_a_hint, "ask_user_question.annotations.readOnlyHint is 1, the contract has true"),
        (_drop_the_version, "ask_user_question._meta.steersman/contract is missing"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_assert_contract_names_every_departure(change: Callable[[list[dict[str, Any]]], None], named: str) -> None:
    listed: list[dict[str, Any]] = copy.deepcopy([dict(tool) for tool in tools()])
    assert_contract(listed)
    change(listed)
    with pytest.raises(AssertionError) as refused:
        assert_contract(listed)
    assert named in str(refused.value)


# --- results --------------------------------------------------------------------------------------------------------


def fits(tool: str, result: CallToolResult) -> dict[str, Any]:
    """The structured content, which must be what the tool's output schema says."""
    assert result.structured_content is not None
    assert JsonSchema(load(tool)["outputSchema"]).faults(result.structured_content) == []
    assert ("error" in result.structured_content) == bool(result.is_error)
    return result.structured_content


@requirement("contract:results")
async def test_good_and_bad_results_of_all_tools_are_what_their_schemas_say(connect: Connect) -> None:
    answers = Human({"q1": "other", "q1_other": "Neither", "q2": ["2", "1"], "q3": "Words"})
    with anyio.fail_after(5):
        async with connect() as world, world.client(answers) as client, world.client(Human({"q1": "1"})) as other:
            async with Host(client).agent() as root, Host(client).agent(owner=root) as child:
                assert fits("ask_user_question", await root.call_tool("ask_user_question", ASK)) == {
                    "answers": [
                        {"id": "one", "selected": [], "custom": "Neither"},
                        {"id": "many", "selected": ["A", "B"]},
                        {"id": "words", "selected": [], "custom": "Words"},
                    ],
                    "via": "elicitation",
                }
                refused: list[tuple[str, dict[str, Any]]] = [
                    ("ask_user_question", {"questions": []}),
                    ("ask_user_question", {}),
                    ("exit_plan_mode", PLAN),
                    ("exit_plan_mode", {"plan": "no heading"}),
                    ("steer_subagent", STEER),
                    ("steer_subagent", {**STEER, "mode": "now"}),
                ]
                for agent in (root, child):
                    for tool, arguments in refused:
                        assert "error" in fits(tool, await agent.call_tool(tool, arguments))
            async with Host(other).agent(plan_mode=True) as planner:
                approved = fits("exit_plan_mode", await planner.call_tool("exit_plan_mode", PLAN))
                assert list(approved) == ["approved", "plan_sha256", "review_id", "via"]


@requirement("contract:results")
async def test_a_skipped_question_is_what_the_schema_says(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "skip"})) as client:
            result = await client.call_tool("ask_user_question", {"questions": ASK["questions"][:1]})
            answers = fits("ask_user_question", result)["answers"]
            assert answers == [{"id": "one", "selected": [], "skipped": True}]
