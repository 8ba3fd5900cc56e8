"""Who is calling: the first claim that is present decides, and nothing falls through to a weaker one."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from steersman_client import Agent, Host, HostMethodError
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, code, error, over_http, text

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
CHOICE_A = {"q1": "1"}


async def subagents_of(agent: Agent, subagent_id: str = "nobody") -> list[dict[str, str]]:
    arguments = {"subagent_id": subagent_id, "message": "turn left"}
    found = error(await agent.call_tool("steer_subagent", arguments))
    assert found["code"] == "UNKNOWN_SUBAGENT"
    return found["subagents"]


@requirement("caller:forged-credential")
@pytest.mark.parametrize("forged", ["", "forged", False, 7, {}, ["x"], "\u0000", "é" * 43])
async def test_a_credential_that_names_nobody_makes_a_dead_caller_never_a_root(connect: Connect, forged: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            for tool, arguments in (
                ("ask_user_question", ASK),
                ("exit_plan_mode", {"plan": "# A\nb"}),
                ("steer_subagent", {"subagent_id": "x", "message": "y"}),
            ):
                result = await client.call_tool(tool, arguments, meta={"steersman/agent": forged})
                assert code(result) == "CALLER_NOT_LIVE"
            assert world.services.registry.list("local") == []


@requirement("caller:ended-credential")
async def test_the_credential_of_an_exited_activation_makes_a_dead_caller(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            agent = await Host(client).enter()
            await agent.exit()
            assert code(await agent.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"


@requirement("caller:forgotten-credential")
async def test_a_host_that_forgets_the_credential_on_one_call_gets_a_dead_caller(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            async with Host(client).agent():
                assert code(await client.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"
            # Once no entered agent lives there, the connection is a simple host's again.
            assert not (await client.call_tool("ask_user_question", ASK)).is_error


@requirement("caller:root-on-first-use")
async def test_a_host_that_tells_nothing_is_one_root(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            for _ in range(2):
                assert not (await client.call_tool("ask_user_question", ASK)).is_error
            [root] = world.services.registry.roots("local")
            assert root.owner_id is None


@requirement("caller:connection-root-ends")
async def test_what_lives_on_a_stream_ends_with_it_and_what_lives_on_a_token_does_not(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            async with world.client(Human(CHOICE_A)) as client:
                await client.call_tool("ask_user_question", ASK)
                await Host(client).enter()
                assert len(world.services.registry.roots("local")) == 2
            left = 2 if world.transport.wire == "http" else 0
            assert len(world.services.registry.roots("local")) == left


@requirement("caller:arguments-never-decide")
@pytest.mark.parametrize("extra", ["agent_id", "is_root", "answers", "approved", "steersman/agent"])
async def test_arguments_that_claim_an_identity_or_an_answer_are_refused(connect: Connect, extra: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            async with Host(client).agent(plan_mode=True) as root, Host(client).agent(owner=root) as child:
                for agent in (root, child):
                    for tool, arguments in (("ask_user_question", ASK), ("exit_plan_mode", {"plan": "# A\nb"})):
                        found = error(await agent.call_tool(tool, {**arguments, extra: True}))
                        assert found["code"] == "INVALID_ARGUMENTS"
                        assert extra in found["reason"]
                assert world.services.plan_mode.active(world.services.registry.roots("local")[0])


@requirement("caller:credential-not-session")
async def test_one_credential_in_two_connections_is_one_agent_and_two_in_one_are_two(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as one, world.client() as two:
            host = Host(one)
            root, other = await host.enter(), await host.enter()
            child = await host.enter(owner=root, label="child")
            seen_here = await subagents_of(root)
            elsewhere = {"subagent_id": "nobody", "message": "x"}
            seen_there = error(await two.call_tool("steer_subagent", elsewhere, meta=root.meta))  # pyright: ignore[reportArgumentType]
            assert seen_here == seen_there["subagents"] == [{"id": child.id, "label": "child", "status": "live"}]
            assert await subagents_of(other) == []


@requirement("caller:header")
@over_http
async def test_the_header_names_an_agent_and_meta_goes_before_it(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            root = await Host(client).enter()
            child = await Host(client).enter(owner=root)
            async with world.client(headers={"Steersman-Agent": child.credential}) as headed:
                assert code(await headed.call_tool("ask_user_question", ASK)) == "DELEGATED_CALLER"
                as_root = await headed.call_tool("ask_user_question", ASK, meta=root.meta)
                assert code(as_root) == "NO_PROVIDER"
            async with world.client(headers={"Steersman-Agent": "forged"}) as headed:
                assert code(await headed.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"


@requirement("realm:nothing-crosses")
@over_http
async def test_a_credential_is_worth_nothing_in_another_realm(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            mine = await Host(client).enter(agent_id="main", label="mine")
            stranger_token = await world.new_token("stranger", subject="somebody-else")
            async with world.client(token=stranger_token) as stranger:
                as_mine = await stranger.call_tool("ask_user_question", ASK, meta=mine.meta)
                assert code(as_mine) == "CALLER_NOT_LIVE"
                assert await Host(stranger).agents() == []
                theirs = await Host(stranger).enter(agent_id="main", label="theirs")
                with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                    await Host(stranger).request(
                        "steersman/agents/exit", {"credential": mine.credential, "outcome": "failed"}
                    )
                with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                    await Host(stranger).enter(owner=mine)
                assert [agent["label"] for agent in await Host(stranger).agents()] == ["theirs"]
                assert theirs.id == mine.id
            assert [agent["label"] for agent in await Host(client).agents()] == ["mine"]


@requirement("realm:token-root")
@over_http
async def test_two_tokens_of_one_principal_share_a_realm_but_not_a_root(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            async with (
                world.client(Human(CHOICE_A)) as one,
                world.client(Human(CHOICE_A), token=await world.new_token("two")) as two,
            ):
                await one.call_tool("ask_user_question", ASK)
                await two.call_tool("ask_user_question", ASK)
                await one.call_tool("ask_user_question", ASK)
            assert len(world.services.registry.roots("local")) == 2


@requirement("registry:re-entry")
async def test_a_parent_that_enters_again_with_its_key_has_its_child_back(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter(agent_id="parent")
            child = await host.enter(owner=parent, label="child")
            await parent.exit()
            again = await host.enter(agent_id="parent", resume_key=parent.resume_key)
            assert again.resume_key == parent.resume_key
            assert await subagents_of(again) == [{"id": child.id, "label": "child", "status": "live"}]


@requirement("registry:resume-key")
@pytest.mark.parametrize("supersede", [False, True])
@pytest.mark.parametrize("key", [None, "x" * 43])
async def test_an_id_without_its_key_is_not_entered_and_the_live_one_is_untouched(
    connect: Connect, supersede: bool, key: str | None
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            parent = await host.enter(agent_id="parent")
            with pytest.raises(HostMethodError, match="RESUME_KEY_REQUIRED"):
                await host.enter(agent_id="parent", resume_key=key, supersede=supersede)
            assert not (await parent.call_tool("ask_user_question", ASK)).is_error


@requirement("steer:unknown-subagent")
async def test_whatever_is_no_direct_subagent_gets_one_text_with_the_callers_own_ones(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            r1, r2 = await host.enter(label="r1"), await host.enter(label="r2")
            mine = await host.enter(owner=r1, label="mine")
            grandchild = await host.enter(owner=mine, label="grandchild")
            theirs = await host.enter(owner=r2, label="theirs")
            asked = [theirs.id, grandchild.id, r1.id, "unknown"]
            results = [await r1.call_tool("steer_subagent", {"subagent_id": at, "message": "m"}) for at in asked]
            assert len({text(result) for result in results}) == 1
            assert error(results[0])["subagents"] == [{"id": mine.id, "label": "mine", "status": "live"}]


@requirement("caller:nobody-steers")
async def test_a_dead_caller_steers_nobody(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            await agent.exit()
            found = error(await agent.call_tool("steer_subagent", {"subagent_id": "x", "message": "y"}))
            assert (found["name"], found["code"]) == ("SubagentError", "CALLER_NOT_LIVE")


@requirement("http:bearer")
@over_http
async def test_without_a_good_token_http_answers_401_and_a_revoked_one_stops_at_once(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            token = await world.new_token("short-lived")

            async def status(authorization: dict[str, str]) -> int:
                async with httpx2.AsyncClient() as http:
                    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
                    return (await http.post(world.url, headers={**accept, **authorization}, content="{}")).status_code

            assert await status({}) == 401
            assert await status({"Authorization": "Bearer wrong"}) == 401
            assert await status({"Authorization": f"Bearer {token}"}) != 401
            await world.services.tokens.revoke("short-lived")
            assert await status({"Authorization": f"Bearer {token}"}) == 401
