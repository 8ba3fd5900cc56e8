"""Who is live and who owns whom, under leases and in any order of entries and exits."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from steersman.errors import HostError, ToolError
from steersman.registry import LEASE_SECONDS, Activation, AgentRegistry
from steersman_client import Host, HostMethodError
from tests.clock import ManualClock
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, code, over

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}


@requirement("registry:lease")
@over("http")
async def test_an_agent_entered_over_http_lives_90_seconds_beyond_its_last_request(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            agent = await Host(client).enter()
            assert agent.lease_seconds == LEASE_SECONDS == 90
            for _ in range(3):
                world.clock.advance(89)
                assert not (await agent.call_tool("ask_user_question", ASK)).is_error
            world.clock.advance(91)
            assert code(await agent.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"
            # With its host gone, the token is a simple host's again.
            assert not (await client.call_tool("ask_user_question", ASK)).is_error
            world.clock.advance(10**6)
            assert len(world.services.registry.roots("local")) == 1


@requirement("registry:lease")
@over("http")
async def test_host_methods_that_name_an_agent_hold_its_lease_and_a_lapsed_one_enters_again(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            agent = await host.enter(mode="one-shot")
            for _ in range(3):
                world.clock.advance(60)
                await agent.set_plan_mode(True)
                world.clock.advance(60)
                await host.enter(owner=agent)
            world.clock.advance(91)
            assert code(await agent.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"
            again = await host.enter(agent_id=agent.id, resume_key=agent.resume_key)
            assert code(await again.call_tool("ask_user_question", ASK)) == "NO_PROVIDER"


@requirement("registry:lease")
@over("memory", "stdio")
async def test_an_agent_entered_over_a_stream_has_no_lease(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            agent = await Host(client).enter()
            assert agent.lease_seconds == 0
            world.clock.advance(10**6)
            assert not (await agent.call_tool("ask_user_question", ASK)).is_error


@requirement("registry:lease")
@over("http")
async def test_an_open_question_holds_the_lease(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter()
            results: list[bool | None] = []

            async def ask() -> None:
                results.append((await agent.call_tool("ask_user_question", ASK)).is_error)

            group.start_soon(ask)
            dialog = await human.next()
            world.clock.advance(45 * 60)
            assert len(world.services.registry.roots("local")) == 1
            dialog.accept(q1="1")
            while not results:
                await anyio.lowlevel.checkpoint()
            assert results == [False]
            world.clock.advance(91)
            assert world.services.registry.roots("local") == []


@requirement("registry:one-shot")
async def test_a_one_shot_agent_that_ended_is_not_entered_again_but_may_be_superseded(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            first = await host.enter(agent_id="once", mode="one-shot")
            second = await host.enter(agent_id="once", resume_key=first.resume_key, supersede=True)
            await second.exit()
            with pytest.raises(HostMethodError, match="AGENT_FINISHED"):
                await host.enter(agent_id="once", resume_key=first.resume_key)
            assert [agent["status"] for agent in await host.agents()] == ["finished"]


@requirement("registry:live-needs-supersede")
async def test_a_live_id_is_entered_again_only_to_supersede_it(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            host = Host(client)
            first = await host.enter(agent_id="main")
            with pytest.raises(HostMethodError, match="AGENT_LIVE"):
                await host.enter(agent_id="main", resume_key=first.resume_key)
            assert not (await first.call_tool("ask_user_question", ASK)).is_error


@requirement("registry:no-cycles")
async def test_no_agent_comes_to_own_itself(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            top = await host.enter(agent_id="top")
            middle = await host.enter(agent_id="middle", owner=top)
            bottom = await host.enter(agent_id="bottom", owner=middle)
            for owner in (top, middle, bottom):
                params = {"id": "top", "resume_key": top.resume_key, "supersede": True, "owner": owner.credential}
                with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                    await host.request("steersman/agents/enter", params)
            await top.exit()
            with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                await host.enter(agent_id="top", resume_key=top.resume_key, owner=bottom)


@requirement("registry:own-key")
async def test_a_host_that_brings_its_own_key_recovers_from_a_lost_reply(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            key = "k" * 43
            lost = await host.enter(agent_id="main", resume_key=key)
            assert lost.resume_key == key
            again = await host.enter(agent_id="main", resume_key=key, supersede=True)
            assert again.resume_key == key
            assert code(await lost.call_tool("ask_user_question", ASK)) == "CALLER_NOT_LIVE"
            for bad in ("short", "x" * 129):
                with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                    await host.enter(agent_id="other", resume_key=bad)


class RegistryMachine(RuleBasedStateMachine):
    """Entries, exits, supersedes, requests and lapses in any order, against a model of a few lines."""

    activations = Bundle("activations")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.registry = AgentRegistry(self.clock)
        self.leased = self.registry.connect("local", "leased", leased=True)
        self.plain = self.registry.connect("local", "plain")
        self.ends: list[Activation] = []
        self.registry.on_end(self.ends.append)
        self.keys: dict[str, str] = {}
        self.lease: dict[Activation, float] = {}
        self.live: set[Activation] = set()

    def expire(self) -> None:
        lapsed = {at for at in self.live if self.lease.get(at, float("inf")) <= self.clock.now()}
        self.live -= lapsed

    @rule(
        target=activations,
        agent_id=st.sampled_from("abcd"),
        owner=st.none() | activations,
        leased=st.booleans(),
        supersede=st.booleans(),
        one_shot=st.booleans(),
    )
    def enter(self, agent_id: str, owner: Activation | None, leased: bool, supersede: bool, one_shot: bool) -> Any:
        binding = self.leased if leased else self.plain
        before = {at.id: at for at in self.live}
        try:
            entered = self.registry.enter(
                binding,
                owner=owner,
                agent_id=agent_id,
                resume_key=self.keys.get(agent_id),
                mode="one-shot" if one_shot else "continuable",
                supersede=supersede,
            )
        except (HostError, ToolError) as refusal:
            self.check_refusal(refusal.code, before.get(agent_id), owner, supersede)
            return cast("Any", multiple())
        self.keys[agent_id] = entered.resume_key
        activation = entered.activation
        self.live.discard(before.get(agent_id, activation))
        self.live.add(activation)
        if leased:
            self.lease[activation] = self.clock.now() + LEASE_SECONDS
        assert self.registry.by_credential("local", entered.credential) is activation
        assert self.registry.by_credential("elsewhere", entered.credential) is None
        return activation

    def check_refusal(self, code: str, live: Activation | None, owner: Activation | None, supersede: bool) -> None:
        expected = {
            "CALLER_NOT_LIVE": owner is not None and owner not in self.live,
            "INVALID_ARGUMENTS": owner in self.live,
            "AGENT_LIVE": live is not None and not supersede,
            "AGENT_FINISHED": live is None,
        }
        assert expected[code]

    @rule(activation=consumes(activations))
    def exit(self, activation: Activation) -> None:
        self.registry.exit(activation, "completed")
        self.live.discard(activation)

    @rule(activation=activations)
    def request(self, activation: Activation) -> None:
        with self.registry.hold(activation):
            self.clock.advance(1000)
            self.expire_but(activation)
            assert self.registry.is_live(activation) == (activation in self.live)
        if activation in self.live and activation in self.lease:
            self.lease[activation] = self.clock.now() + LEASE_SECONDS

    def expire_but(self, held: Activation) -> None:
        was_live = held in self.live
        self.expire()
        if was_live:
            self.live.add(held)

    @rule(seconds=st.sampled_from([1, 30, 89, 91]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.expire()

    @rule()
    def close_stream(self) -> None:
        self.registry.close(self.plain)
        self.plain = self.registry.connect("local", "plain")
        self.live = {at for at in self.live if at in self.lease}

    @invariant()
    def live_ones_and_counts_hold(self) -> None:
        self.expire()
        for activation in self.live | set(self.ends):
            assert self.registry.is_live(activation) == (activation in self.live)
        assert len({at.id for at in self.live}) == len(self.live)
        assert self.registry.hosted(self.leased) == any(at in self.lease for at in self.live)
        assert self.registry.hosted(self.plain) == any(at not in self.lease for at in self.live)
        assert set(self.registry.roots("local")) == {at for at in self.live if at.owner_id is None}


@requirement("registry:model")
def test_the_registry_agrees_with_a_model_in_any_order_of_events() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        RegistryMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )  # pyright: ignore[reportUnknownMemberType]
