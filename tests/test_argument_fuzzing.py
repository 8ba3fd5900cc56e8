"""Whatever the arguments are: read or refused in order, by schema and model alike, and the server serves on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import BaseModel, ValidationError

from steersman.contract.arguments import AskArguments, PlanArguments, SteerArguments, parse_ask, parse_plan, parse_steer
from steersman.contract.files import TOOL_NAMES, load
from steersman.contract.results import error_text
from steersman.errors import ToolError
from steersman.text import is_unicode
from steersman_client import Host
from tests.fuzz import VALID, Fuzz, members
from tests.human import Human
from tests.json_schema import JsonSchema
from tests.requirements import requirement
from tests.world import Connect, code, error, over

pytestmark = pytest.mark.anyio

MODELS: dict[str, type[BaseModel]] = {
    "ask_user_question": AskArguments,
    "exit_plan_mode": PlanArguments,
    "steer_subagent": SteerArguments,
}
PARSERS: dict[str, Callable[[object], BaseModel]] = {
    "ask_user_question": parse_ask,
    "exit_plan_mode": parse_plan,
    "steer_subagent": parse_steer,
}
SCHEMAS = {name: JsonSchema(load(name)["inputSchema"]) for name in TOOL_NAMES}

each_tool = pytest.mark.parametrize("tool", TOOL_NAMES)
many = settings(max_examples=300, deadline=None)

unicode_text = st.text(max_size=20)
any_text = unicode_text | st.text(st.characters(codec=None, categories=None), max_size=5) | st.just("\ud800")


def json_values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=15
    )


def fuzzed(tool: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that are almost right."""
    return st.integers(0, 2**40).map(lambda seed: Fuzz(seed).arguments(tool))


def model_accepts(tool: str, value: object) -> bool:
    try:
        MODELS[tool].model_validate(value)
    except ValidationError:
        return False
    return True


@requirement("arguments:schema-and-model")
@each_tool
@many
@given(data=st.data())
def test_schema_and_model_accept_the_same_values(tool: str, data: st.DataObject) -> None:
    value = data.draw(fuzzed(tool) | json_values(unicode_text))
    assert SCHEMAS[tool].accepts(value) == model_accepts(tool, value)


@requirement("arguments:schema-and-model")
@each_tool
def test_almost_right_values_are_of_both_kinds(tool: str) -> None:
    fuzz = Fuzz(1)
    accepted = [SCHEMAS[tool].accepts(fuzz.arguments(tool)) for _ in range(500)]
    assert 10 < sum(accepted) < 490


@requirement("arguments:schema-and-model")
@each_tool
def test_leaving_out_or_adding_any_one_member_is_judged_alike(tool: str) -> None:
    whole = copy.deepcopy(VALID[tool])
    assert SCHEMAS[tool].accepts(whole)
    others: list[Any] = [None, 1, True, "x", [], {}]
    for holder in [whole, *(held for _, _, held in members(whole))]:
        if isinstance(holder, list):
            continue
        for key in list(holder):
            kept = holder[key]
            for other in others:
                holder[key] = other
                assert SCHEMAS[tool].accepts(whole) == model_accepts(tool, whole)
            del holder[key]
            assert SCHEMAS[tool].accepts(whole) == model_accepts(tool, whole)
            holder[key] = kept
        holder["more"] = "x"
        assert not SCHEMAS[tool].accepts(whole)
        assert not model_accepts(tool, whole)
        del holder["more"]


def check_refusal(refusal: ToolError) -> None:
    assert refusal.code in ("INVALID_ARGUMENTS", "LIMIT_EXCEEDED")
    message = error_text(refusal)
    assert is_unicode(message)
    assert message.endswith(".")
    assert len(message) < 2000


@requirement("arguments:always-a-tool-error")
@each_tool
@many
@given(data=st.data())
def test_any_value_is_read_or_refused(tool: str, data: st.DataObject) -> None:
    value = data.draw(json_values(any_text) | fuzzed(tool))
    before = copy.deepcopy(value)
    try:
        read = PARSERS[tool](value)
    except ToolError as refusal:
        check_refusal(refusal)
    else:
        assert isinstance(read, MODELS[tool])
        assert SCHEMAS[tool].accepts(read.model_dump(mode="json"))
    # NaN is unlike itself, but written alike.
    assert repr(value) == repr(before)


@requirement("arguments:always-a-tool-error")
@many
@given(
    text=st.text() | json_values(unicode_text).map(str) | st.sampled_from(["[" * 5000, "9" * 5000, "[NaN]", "[1e999]"])
)
def test_any_text_as_questions_is_read_or_refused(text: str) -> None:
    try:
        parse_ask({"questions": text})
    except ToolError as refusal:
        check_refusal(refusal)


@requirement("arguments:always-a-tool-error")
def test_ten_thousand_objects_are_read_or_refused() -> None:
    fuzz = Fuzz(45)
    refused = 0
    for number in range(10_000):
        tool = TOOL_NAMES[number % 3]
        try:
            PARSERS[tool](fuzz.arguments(tool))
        except ToolError as refusal:
            check_refusal(refusal)
            refused += 1
    assert 5_000 < refused < 10_000


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@requirement("arguments:always-a-tool-error")
@each_tool
@pytest.mark.parametrize("value", [deep(100_000), 10**5000], ids=["deep", "long number"])
def test_values_that_cannot_even_be_printed_are_refused(tool: str, value: object) -> None:
    for member in VALID[tool]:
        for arguments in (value, {**VALID[tool], member: value}, {**VALID[tool], "more": value}):
            with pytest.raises(ToolError) as refusal:
                PARSERS[tool](arguments)
            check_refusal(refusal.value)


# --- over the wire --------------------------------------------------------------------------------------------------


@requirement("arguments:always-a-tool-error")
async def test_hundreds_of_objects_get_tool_errors_and_the_server_serves_on(connect: Connect) -> None:
    fuzz = Fuzz(7)
    calls = [(tool, fuzz.arguments(tool)) for _ in range(100) for tool in TOOL_NAMES]
    seen: set[str] = set()
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, Host(client).agent() as root:
            limit = anyio.Semaphore(10)

            async def call(tool: str, arguments: dict[str, Any]) -> None:
                async with limit:
                    seen.add(code(await root.call_tool(tool, arguments)))

            async with anyio.create_task_group() as group:
                for tool, arguments in calls:
                    group.start_soon(call, tool, arguments)
            # Nobody can be reached here, plan mode is off and there is no subagent: what was read failed later.
            read = {"NO_PROVIDER", "EMPTY_QUESTIONS", "NOT_IN_PLAN_MODE", "UNKNOWN_SUBAGENT"}
            assert seen == {"INVALID_ARGUMENTS", *read}
            assert code(await root.call_tool("steer_subagent", VALID["steer_subagent"])) == "UNKNOWN_SUBAGENT"


@requirement("arguments:always-a-tool-error")
@over("stdio", "http")
@pytest.mark.parametrize("arguments", [[], [1], "text", 7, True])
async def test_arguments_that_are_no_object_are_an_orderly_protocol_error(connect: Connect, arguments: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            for tool in TOOL_NAMES:
                with pytest.raises(MCPError) as refused:
                    await Host(client).request("tools/call", {"name": tool, "arguments": arguments})
                assert refused.value.code == INVALID_PARAMS
            assert code(await client.call_tool("exit_plan_mode", VALID["exit_plan_mode"])) == "NOT_IN_PLAN_MODE"


@requirement("arguments:always-a-tool-error")
async def test_no_arguments_at_all_lack_what_is_required(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            for tool in TOOL_NAMES:
                assert code(await client.call_tool(tool)) == "INVALID_ARGUMENTS"


@requirement("arguments:always-a-tool-error")
@over("http")
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000, b"null", b'"text"', b"[]"])
async def test_what_is_no_json_or_no_request_is_an_orderly_error_on_http(connect: Connect, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, httpx2.AsyncClient() as http:
            headers["Authorization"] = f"Bearer {world.default_token}"
            if world.transport.era == "modern":
                headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
            reply = await http.post(world.url, content=body, headers=headers)
            assert reply.status_code == 400
            assert reply.json()["error"]["code"] in (-32700, -32600, -32602)
            assert code(await client.call_tool("exit_plan_mode", VALID["exit_plan_mode"])) == "NOT_IN_PLAN_MODE"


# --- claims in the arguments ----------------------------------------------------------------------------------------


@requirement("arguments:texts")
@pytest.mark.parametrize("claim", [{"agent_id": "root"}, {"is_root": True}, {"answers": []}, {"approved": True}])
async def test_claims_in_arguments_are_unknown_properties_and_change_nothing(
    connect: Connect, claim: dict[str, Any]
) -> None:
    human = Human()
    [name] = claim
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            async with Host(client).agent(plan_mode=True) as root, Host(client).agent(owner=root) as child:
                for agent in (root, child):
                    for tool in TOOL_NAMES:
                        found = error(await agent.call_tool(tool, {**VALID[tool], **claim}))
                        assert found["code"] == "INVALID_ARGUMENTS"
                        assert f'found an unknown property "{name}"' in found["reason"]
                    assert await agent.set_plan_mode(True) == ("noop" if agent is root else "committed")
                assert human.dialogs == []
