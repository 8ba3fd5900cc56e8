"""The host methods: shapes, refusals, the tree, and how they are advertised."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import Request, Result

from steersman.host_methods import HOST_METHODS
from steersman_client import Host, HostMethodError
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, in_era, over

pytestmark = pytest.mark.anyio


@requirement("host:shapes")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("steersman/agents/enter", {"unknown": 1}),
        ("steersman/agents/enter", {"id": 5}),
        ("steersman/agents/enter", {"mode": "forever"}),
        ("steersman/agents/enter", {"supersede": "yes"}),
        ("steersman/agents/exit", {}),
        ("steersman/agents/exit", {"credential": "x", "outcome": "great"}),
        ("steersman/agents/list", {"all": True}),
        ("steersman/plan/set", {"credential": "x"}),
        ("steersman/plan/set", {"credential": "x", "active": 1}),
    ],
)
async def test_parameters_of_a_wrong_shape_are_invalid_params(connect: Connect, method: str, params: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            with pytest.raises(MCPError) as refusal:
                await Host(client).request(method, params)
            assert refusal.value.error.code == -32602
            assert method in refusal.value.error.message
            assert await Host(client).agents() == []


@requirement("host:shapes")
async def test_a_refusal_is_4001_with_name_code_and_message(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            for method, params in (
                ("steersman/agents/exit", {"credential": "nobody", "outcome": "completed"}),
                ("steersman/plan/set", {"credential": "nobody", "active": True}),
                ("steersman/agents/enter", {"owner": "nobody"}),
            ):
                with pytest.raises(HostMethodError) as refusal:
                    await Host(client).request(method, params)
                assert refusal.value.code == "CALLER_NOT_LIVE"
                assert list(refusal.value.data) == ["name", "code", "message"]
                assert refusal.value.data["name"] == "HostError"


@requirement("host:shapes")
@over("memory")
@pytest.mark.parametrize("name", ["agent_id", "text", "credential"])
async def test_text_that_is_no_unicode_is_refused_wherever_it_stands(connect: Connect, name: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            params = {"credential": agent.credential, "agent_id": "x", "text": "y", "at": "step", name: "\ud800"}
            request = Request[dict[str, Any], str](
                method="steersman/agents/send", params={**params, "_meta": {"steersman/idempotencyKey": "k"}}
            )
            with pytest.raises(MCPError, match=f"INVALID_ARGUMENTS: .*at '{name}', found half of a surrogate pair"):
                await client.session.send_request(request, Result)


@requirement("host:shapes")
@pytest.mark.parametrize("agent_id", ["", " ", "two words", "line\nbreak", "x" * 129, "zero\u200bwidth", "\u202ertl"])
async def test_an_id_is_visible_text_of_limited_length(connect: Connect, agent_id: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            with pytest.raises(HostMethodError, match=r"INVALID_ARGUMENTS: .*1 to 128 visible characters"):
                await Host(client).enter(agent_id=agent_id)
            assert (await Host(client).enter(agent_id="可见-1")).id == "可见-1"


@requirement("host:list")
@in_era("legacy")
async def test_the_tree_shows_owners_status_plan_mode_and_what_waits(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            host = Host(client)
            main = await host.enter(agent_id="main", label="Main", plan_mode=True)
            child = await host.enter(agent_id="child", label="Child", owner=main)
            await host.enter(agent_id="grandchild", owner=child, mode="one-shot")
            gone = await host.enter(agent_id="gone", owner=main)
            await gone.exit("failed")
            question = {"questions": [{"id": "q", "question": "?"}]}
            await main.send("child", "First.")
            await main.send("gone", "Later.")
            group.start_soon(main.call_tool, "ask_user_question", question)
            dialog = await human.next()
            leaf: dict[str, Any] = {
                "mode": "continuable",
                "plan_mode": False,
                "open_questions": 0,
                "waiting": 0,
                "subagents": [],
            }
            grandchild = {**leaf, "agent_id": "grandchild", "label": "", "status": "live", "mode": "one-shot"}
            assert await host.agents() == [
                {
                    **leaf,
                    "agent_id": "main",
                    "label": "Main",
                    "status": "live",
                    "plan_mode": True,
                    "open_questions": 1,
                    "waiting": 0,
                    "subagents": [
                        {
                            **leaf,
                            "agent_id": "child",
                            "label": "Child",
                            "status": "live",
                            "waiting": 1,
                            "subagents": [grandchild],
                        },
                        {**leaf, "agent_id": "gone", "label": "", "status": "stored", "waiting": 1},
                    ],
                }
            ]
            dialog.accept(q1="x")


@requirement("host:list")
@over("memory")
async def test_the_tree_shows_every_agent_in_chains_and_circles_too(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            a = await host.enter(agent_id="a")
            b = await host.enter(agent_id="b", owner=a)
            c = await host.enter(agent_id="c", owner=b)
            await b.exit()
            await host.enter(agent_id="a", resume_key=a.resume_key, supersede=True, owner=c)
            shown = await host.agents()
            assert sorted(names(shown)) == ["a", "b", "c"]
            owner = await host.enter()
            for _ in range(200):
                owner = await host.enter(owner=owner)
            assert len(names(await host.agents())) == 204


def names(agents: list[dict[str, Any]]) -> list[str]:
    return [name for agent in agents for name in (agent["agent_id"], *names(agent["subagents"]))]


@requirement("host:shapes")
async def test_a_label_and_a_final_result_have_a_length(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter(label="x" * 256)
            with pytest.raises(MCPError, match="label"):
                await Host(client).enter(label="x" * 257)
            with pytest.raises(MCPError, match="final"):
                await agent.exit(final="x" * (1024 * 1024 + 1))


@requirement("host:advertised")
async def test_the_host_methods_are_advertised_in_both_eras(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            capabilities = client.server_capabilities
            shown = capabilities.extensions if world.transport.era == "modern" else capabilities.experimental
            assert shown == {"steersman/host": {"methods": list(HOST_METHODS)}}
