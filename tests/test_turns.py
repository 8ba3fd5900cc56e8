"""Boundaries: what `next` and `watch` say, when they wait, and what a lost or late reply changes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from steersman.journal import AgentEntered, MessagesConfirmed, TurnClosed, TurnOpened
from steersman_client import Agent, Host, HostMethodError, Reading
from steersman_client.agent import At
from tests.requirements import requirement
from tests.world import Connect, World, over, over_http

pytestmark = pytest.mark.anyio


def texts(reading: Reading) -> list[str]:
    return [message.text for message in reading.messages]


def standing(turn: int, *, is_open: bool, interrupted: bool = False) -> Reading:
    return Reading(turn, is_open, [], interrupted, plan_mode=False)


async def family(host: Host, **child: Any) -> tuple[Agent, Agent]:
    parent = await host.enter(agent_id="parent")
    return parent, await host.enter(agent_id="child", owner=parent, **child)


async def polls(world: World, agent: Agent, count: int = 1) -> None:
    """Wait until so many calls of an agent are open in the server."""
    found = world.services.registry.get("local", agent.id)
    assert found is not None
    while found.current is None or found.current.open_calls < count:
        await anyio.lowlevel.checkpoint()


# --- next ------------------------------------------------------------------------------------------------------------


@requirement("turn:boundaries")
async def test_a_turn_that_the_host_begins_runs_from_step_to_step_until_it_closes(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            assert await agent.next(turn=0, at="begin", after=0) == standing(1, is_open=True)
            assert await agent.next(turn=1, at="step", after=0) == standing(1, is_open=True)
            assert await agent.next(turn=1, at="end", after=0) == standing(1, is_open=False)
            assert await agent.next(turn=1, at="idle", after=0) == standing(1, is_open=False)
            assert await agent.next(turn=1, at="begin", after=0) == standing(2, is_open=True)


@requirement("turn:stale")
async def test_whatever_does_not_fit_changes_nothing_and_tells_where_the_turn_stands(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await parent.send(child.id, "First.")
            await child.next(turn=0, at="idle", after=0)
            await parent.send(child.id, "Second.")
            before = world.events
            unfit: list[tuple[int, At, int]] = [
                (0, "begin", 0),
                (0, "idle", 0),
                (0, "step", 1),
                (0, "end", 1),
                (7, "step", 1),
                (0, "step", 99),
                (1, "begin", 0),
                (1, "idle", 0),
            ]
            for turn, at, after in unfit:
                assert await child.next(turn=turn, at=at, after=after) == standing(1, is_open=True)
            assert world.events == before
            await child.next(turn=1, at="end", after=1)
            assert not (await child.next(turn=1, at="end", after=2)).open
            before = world.events
            for at in ("step", "end"):
                assert await child.next(turn=1, at=at, after=2) == standing(1, is_open=False)
            assert world.events == before


@requirement("turn:lost-reply")
async def test_what_a_lost_reply_brought_comes_again_under_its_number(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await parent.send(child.id, "First.")
            lost = await child.next(turn=0, at="idle", after=0)
            assert await child.next(turn=0, at="idle", after=0) == standing(1, is_open=True)
            again = await child.next(turn=1, at="step", after=0)
            assert again.messages == lost.messages

            await parent.send(child.id, "Second.")
            lost = await child.next(turn=1, at="step", after=1)
            again = await child.next(turn=1, at="end", after=1)
            assert (again.open, again.messages) == (True, lost.messages)
            assert [message.seq for message in again.messages] == [2]

            await child.next(turn=1, at="end", after=2)
            assert await child.next(turn=1, at="end", after=2) == standing(1, is_open=False)
            await child.next(turn=1, at="begin", after=2)
            assert await child.next(turn=1, at="begin", after=2) == standing(2, is_open=True)


@requirement("turn:confirmed")
async def test_only_the_highest_number_ever_named_counts(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await child.next(turn=0, at="begin", after=0)
            for name in ("A", "B", "C"):
                await parent.send(child.id, name)
            assert texts(await child.next(turn=1, at="step", after=0)) == ["A", "B", "C"]
            assert texts(await child.next(turn=1, at="step", after=1)) == ["B", "C"]
            assert texts(await child.next(turn=1, at="step", after=0)) == ["B", "C"]
            assert texts(await child.next(turn=1, at="step", after=3)) == []
            confirmed = [event.seq for event in world.events if isinstance(event, MessagesConfirmed)]
            assert confirmed == [1, 3]


@requirement("turn:confirmed")
@pytest.mark.parametrize("at", ["begin", "idle", "step", "end"])
async def test_a_number_that_was_never_handed_out_is_refused(connect: Connect, at: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await parent.send(child.id, "A")
            with pytest.raises(HostMethodError, match=r"INVALID_ARGUMENTS: .*at after, found 1; .*0 to 0"):
                await child.next(turn=0, at=at, after=1)
            assert texts(await child.next(turn=0, at="idle", after=0)) == ["A"]


@requirement("turn:waits")
async def test_an_idle_agent_is_woken_by_what_comes(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            readings: list[Reading] = []

            async def wait() -> None:
                readings.append(await child.next(turn=0, at="idle", after=0, wait=60))

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await polls(world, child)
                assert readings == []
                await parent.send(child.id, "Wake up.")
            assert texts(readings[0]) == ["Wake up."]


@requirement("turn:waits")
async def test_idle_waits_as_long_as_it_was_told_and_everything_else_not_at_all(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            _, child = await family(Host(client))
            assert not (await child.next(turn=0, at="idle", after=0)).open
            readings: list[Reading] = []

            async def wait() -> None:
                readings.append(await child.next(turn=0, at="idle", after=0, wait=60))

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await world.clock.until_sleepers()
                world.clock.advance(59)
                await anyio.wait_all_tasks_blocked()
                assert readings == []
                world.clock.advance(1)
            assert readings == [standing(0, is_open=False)]
            for at in ("begin", "step", "end"):
                await child.next(turn=1 if at != "begin" else 0, at=at, after=0, wait=60)


@requirement("turn:waits")
async def test_an_idle_agent_is_not_woken_by_a_notice_and_one_poll_alone_opens_the_turn(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            root = await host.enter()
            child = await host.enter(owner=root)
            gone = await host.enter(owner=child, mode="one-shot")
            await child.send(gone.id, "In vain.")
            readings: list[Reading] = []

            async def wait() -> None:
                readings.append(await child.next(turn=0, at="idle", after=0, wait=60))

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                group.start_soon(wait)
                await polls(world, child, 2)
                await gone.exit()
                await anyio.wait_all_tasks_blocked()
                assert readings == []
                await root.send(child.id, "Wake up.")
            assert sorted(len(reading.messages) for reading in readings) == [0, 2]
            assert [(reading.turn, reading.open) for reading in readings] == [(1, True)] * 2


@requirement("turn:waits")
async def test_a_server_that_goes_away_lets_everybody_go(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            _, child = await family(Host(client))
            version = (await child.watch(seen=0)).version
            ended: list[object] = []

            async def wait() -> None:
                ended.append(await child.next(turn=0, at="idle", after=0, wait=60))

            async def watch() -> None:
                ended.append(await child.watch(seen=version, wait=60))

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                group.start_soon(watch)
                await polls(world, child, 2)
                world.services.withdraw_all()
            assert len(ended) == 2


@requirement("turn:superseded")
async def test_a_poll_of_a_replaced_activation_ends_and_what_comes_is_the_new_ones(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            refused: list[str] = []

            async def wait() -> None:
                with pytest.raises(HostMethodError) as refusal:
                    await child.next(turn=0, at="idle", after=0, wait=60)
                refused.append(refusal.value.code)

            known = world.services.registry.get("local", "child")
            assert known is not None
            replaced = known.current
            assert replaced is not None
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await polls(world, child)
                again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent, supersede=True)
                await parent.send("child", "For whoever lives.")
                assert texts(await again.next(turn=0, at="idle", after=0)) == ["For whoever lives."]
                assert replaced.open_calls == 0
            assert refused == ["CALLER_NOT_LIVE"]


@requirement("turn:superseded")
async def test_a_turn_that_an_activation_left_open_is_closed_for_the_next_one(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            await child.next(turn=0, at="begin", after=0)
            await parent.send("child", "In the middle.")
            await parent.interrupt("child")
            again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent, supersede=True)
            with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                await child.next(turn=1, at="step", after=0)
            assert await again.next(turn=0, at="idle", after=0) == standing(1, is_open=False)
            assert texts(await again.next(turn=1, at="idle", after=0)) == ["In the middle."]


@requirement("turn:plan-mode")
async def test_a_switch_during_a_turn_takes_effect_at_the_next_boundary(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            assert await agent.set_plan_mode(True) == "committed"
            assert (await agent.next(turn=0, at="begin", after=0)).plan_mode
            assert [await agent.set_plan_mode(active) for active in (True, False, False, True, False)] == [
                "noop",
                "queued",
                "noop",
                "cancelled",
                "queued",
            ]
            [shown] = await agent.host.agents()
            assert shown["plan_mode"]
            assert not (await agent.next(turn=1, at="step", after=0)).plan_mode
            assert await agent.set_plan_mode(True) == "queued"
            assert (await agent.next(turn=1, at="end", after=0)).plan_mode
            assert await agent.set_plan_mode(False) == "committed"


@requirement("turn:plan-mode")
async def test_the_prompt_during_a_turn_waits_for_the_boundary_and_a_turn_that_dies_is_one(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            agent = await host.enter(agent_id="main")
            await agent.next(turn=0, at="begin", after=0)
            await agent.get_prompt("plan")
            assert not (await host.agents())[0]["plan_mode"]
            await host.enter(agent_id="main", resume_key=agent.resume_key, supersede=True)
            assert (await host.agents())[0]["plan_mode"]


# --- watch -----------------------------------------------------------------------------------------------------------


@requirement("watch:state")
async def test_a_watch_returns_when_the_state_is_not_the_one_that_was_seen(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            seen: list[tuple[int | None, int, list[str]]] = []
            arrived = [anyio.Event() for _ in range(4)]

            async def watch() -> None:
                version = 0
                for event in arrived:
                    watched = await child.watch(seen=version, wait=60)
                    assert watched.version not in (0, version)
                    version = watched.version
                    seen.append((watched.interrupt_turn, watched.waiting, list(watched.resume)))
                    event.set()

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await arrived[0].wait()
                await child.next(turn=0, at="begin", after=0)
                await parent.send("child", "A")
                await arrived[1].wait()
                await parent.interrupt("child")
                await arrived[2].wait()
                await child.next(turn=1, at="end", after=0)
                await arrived[3].wait()
            assert seen == [(None, 0, []), (None, 1, []), (1, 1, []), (None, 1, [])]


@requirement("watch:state")
async def test_a_watch_tells_the_owner_whom_to_resume(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            await child.exit()
            version = (await parent.watch(seen=0)).version
            resumes: list[list[str]] = []

            async def watch(version: int) -> None:
                resumes.append(list((await parent.watch(seen=version, wait=60)).resume))

            async with anyio.create_task_group() as group:
                group.start_soon(watch, version)
                await polls(world, parent)
                await parent.send("child", "Come back.")
            version = (await parent.watch(seen=0)).version
            async with anyio.create_task_group() as group:
                group.start_soon(watch, version)
                await polls(world, parent)
                await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
            assert resumes == [["child"], []]


@requirement("watch:state")
async def test_a_watch_ends_after_its_time_with_the_same_state(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            _, child = await family(Host(client))
            first = await child.watch(seen=0, wait=60)
            again: list[object] = []

            async def watch() -> None:
                again.append(await child.watch(seen=first.version, wait=60))

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await world.clock.until_sleepers()
                world.clock.advance(60)
            assert again == [first]


@requirement("turn:waits")
@pytest.mark.parametrize("wait_ms", [-1, 60_001, 1.5, "1"])
async def test_a_wait_is_a_minute_at_most(connect: Connect, wait_ms: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            common = {"credential": agent.credential, "wait_ms": wait_ms}
            for method, params in (("next", {"turn": 0, "at": "idle", "after": 0}), ("watch", {"seen": 0})):
                with pytest.raises(MCPError) as refusal:
                    await Host(client).request(f"steersman/agents/{method}", {**common, **params})
                assert refusal.value.error.code == -32602


# --- leases and clocks -----------------------------------------------------------------------------------------------


@requirement("watch:lease")
@over_http
async def test_an_open_poll_keeps_the_lease_however_long_it_lasts(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            ended = anyio.Event()

            async def watch() -> None:
                await child.watch(seen=(await child.watch(seen=0)).version, wait=60)
                ended.set()

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await world.clock.until_sleepers()
                # A machine that slept: the poll is over, and the lease begins with its end.
                world.clock.advance(3600)
                await ended.wait()
                world.clock.advance(89)
                assert not (await child.next(turn=0, at="idle", after=0)).open
                with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                    await parent.watch(seen=0)
                world.clock.advance(91)
                with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                    await child.watch(seen=0)


@requirement("watch:lease")
@over_http
async def test_a_lease_that_runs_out_during_a_step_leaves_the_message_for_the_next_activation(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host, mode="one-shot")
            await parent.send("child", "First.")
            assert texts(await child.next(turn=0, at="idle", after=0)) == ["First."]
            world.clock.advance(60)
            await parent.send("child", "Second.")
            world.clock.advance(60)
            with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                await child.next(turn=1, at="step", after=1)
            # It did not end by itself: it may be entered again, and its owner's host is told so.
            assert (await parent.watch(seen=0)).resume == ["child"]
            assert (await parent.send("child", "Third."))["route"] == "cold-resume"
            again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
            reading = await again.next(turn=1, at="idle", after=1)
            assert texts(reading) == ["Second.", "Third."]


@requirement("turn:wall-clock")
async def test_a_wall_clock_that_jumps_changes_what_is_shown_and_nothing_else(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await child.next(turn=0, at="begin", after=0)
            for name, jump in (("A", 0.0), ("B", 86_400.5), ("C", -172_800.0)):
                world.clock.wall += jump
                await parent.send("child", name)
            reading = await child.next(turn=1, at="step", after=0)
            assert [(message.text, message.accepted_at) for message in reading.messages] == [
                ("A", "2027-01-15T08:00:00.000Z"),
                ("B", "2027-01-16T08:00:00.500Z"),
                ("C", "2027-01-14T08:00:00.500Z"),
            ]
            assert (await parent.watch(seen=0)).waiting == 0


# --- the record ------------------------------------------------------------------------------------------------------


@requirement("turn:boundaries")
@over("memory")
async def test_a_poll_that_finds_nothing_leaves_no_record(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            agent = await Host(client).enter()
            await agent.next(turn=0, at="idle", after=0)
            await agent.next(turn=0, at="begin", after=0)
            await agent.next(turn=1, at="step", after=0)
            await agent.next(turn=1, at="end", after=0)
            await agent.watch(seen=0)
            assert [type(event) for event in world.events] == [AgentEntered, TurnOpened, TurnClosed]
