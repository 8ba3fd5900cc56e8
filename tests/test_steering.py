"""Steering: who may be reached, by which route, in which order, and what becomes of each message."""

from __future__ import annotations

import itertools
import re
from typing import Any, cast

import anyio
import pytest

from steersman import steering
from steersman.steering import choose_route
from steersman_client import Agent, Host, HostMethodError, Reading
from tests.requirements import requirement
from tests.world import Connect, code, error, over, over_http, text

pytestmark = pytest.mark.anyio


async def steer(agent: Agent, target: str, message: str = "Look here.", mode: str | None = None, **meta: Any) -> Any:
    """Steer by the tool; returns what it says, which must be a success."""
    result = await agent.call_tool("steer_subagent", arguments(target, message, mode), meta=meta)
    assert not result.is_error, text(result)
    return result.structured_content


async def refusal(agent: Agent, target: str, message: str = "Look here.", mode: str | None = None) -> Any:
    return error(await agent.call_tool("steer_subagent", arguments(target, message, mode)))


def arguments(target: str, message: str, mode: str | None) -> dict[str, Any]:
    return {"subagent_id": target, "message": message, **({"mode": mode} if mode else {})}


def texts(reading: Reading) -> list[str]:
    return [message.text for message in reading.messages]


async def notices(agent: Agent) -> list[tuple[str, str | None]]:
    """What the server itself says to an agent that begins its first turn now."""
    reading = await agent.next(turn=0, at="begin", after=0)
    return [(message.text, message.agent_id) for message in reading.messages if message.kind == "notice"]


# --- routes ----------------------------------------------------------------------------------------------------------


@requirement("steer:routes")
@pytest.mark.parametrize("mode", [None, "step", "turn"])
async def test_each_state_of_the_target_has_its_route(connect: Connect, mode: str | None) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter(agent_id="parent")
            child = await host.enter(agent_id="child", owner=parent)
            assert (await steer(parent, "child", mode=mode))["route"] == "wakeup"

            reading = await child.next(turn=0, at="idle", after=0)
            assert (reading.turn, reading.open, texts(reading)) == (1, True, ["Look here."])
            running = await steer(parent, "child", "While it runs.", mode)
            assert running["route"] == ("turn" if mode == "turn" else "step")
            reading = await child.next(turn=1, at="step", after=1)
            if mode == "turn":
                assert (reading.interrupted, texts(reading)) == (True, [])
                reading = await child.next(turn=1, at="end", after=1)
                assert (reading.open, texts(reading)) == (False, [])
                reading = await child.next(turn=1, at="idle", after=1)
            assert texts(reading) == ["While it runs."]

            await child.exit()
            stored = await steer(parent, "child", "While it is away.", mode)
            assert stored["route"] == "cold-resume"
            assert (await parent.watch(seen=0)).resume == ["child"]
            again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
            assert (await parent.watch(seen=0)).resume == []
            turn = (await again.next(turn=0, at="idle", after=0)).turn
            reading = await again.next(turn=turn, at="idle", after=2)
            assert texts(reading) == ["While it is away."]


@requirement("steer:routes")
def test_the_route_is_a_function_of_mode_and_status_alone() -> None:
    assert {
        (status, mode): choose_route(cast("Any", mode), cast("Any", status))
        for status, mode in itertools.product(["live", "running", "idle", "stored"], ["step", "turn"])
    } == {
        ("live", "step"): ("wakeup", "next_turn"),
        ("live", "turn"): ("wakeup", "next_turn"),
        ("running", "step"): ("step", "next_step"),
        ("running", "turn"): ("turn", "next_turn"),
        ("idle", "step"): ("wakeup", "next_turn"),
        ("idle", "turn"): ("wakeup", "next_turn"),
        ("stored", "step"): ("cold-resume", "next_turn"),
        ("stored", "turn"): ("cold-resume", "next_turn"),
    }


@requirement("steer:source")
async def test_a_message_says_who_sent_it_and_that_it_was_an_agent_or_a_host(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter(agent_id="parent")
            child = await Host(client).enter(agent_id="child", owner=parent)
            sent = await steer(parent, "child", "Von Agent: ⟦你好⟧ \u202e\x1b[2J")
            await parent.send("child", "From the host.")
            first = (await child.next(turn=0, at="idle", after=0)).messages[0]
            assert (first.seq, first.id, first.text) == (1, sent["message_id"], "Von Agent: ⟦你好⟧ \u202e\x1b[2J")
            assert (first.kind, first.agent_id, first.accepted_at) == ("agent", "parent", "2027-01-15T08:00:00.000Z")
            assert not (await child.next(turn=1, at="end", after=1)).open
            second = (await child.next(turn=1, at="idle", after=1)).messages[0]
            assert (second.seq, second.text, second.kind, second.agent_id) == (2, "From the host.", "host", "parent")


# --- who may be reached ----------------------------------------------------------------------------------------------


@requirement("steer:before-effect")
async def test_a_grandchild_and_a_strangers_child_are_refused_before_anything_happens(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, other = await host.enter(agent_id="parent"), await host.enter()
            child = await host.enter(owner=parent)
            grandchild, strangers = await host.enter(owner=child), await host.enter(owner=other)
            for agent in (grandchild, strangers):
                await agent.next(turn=0, at="begin", after=0)
                before = world.events
                for mode in ("step", "turn"):
                    found = await refusal(parent, agent.id, mode=mode)
                    assert found["code"] == "UNKNOWN_SUBAGENT"
                    assert found["subagents"] == [{"id": child.id, "label": "", "status": "live"}]
                with pytest.raises(HostMethodError, match="UNKNOWN_SUBAGENT"):
                    await parent.send(agent.id, "From the host.")
                assert world.events == before
                reading = await agent.next(turn=1, at="step", after=0)
                assert (reading.messages, reading.interrupted) == ([], False)


@requirement("steer:before-effect")
async def test_a_child_that_lives_as_a_root_or_under_another_owner_is_no_subagent(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, other = await host.enter(), await host.enter()
            child = await host.enter(agent_id="child", owner=parent)
            for owner in (None, other):
                await host.enter(agent_id="child", resume_key=child.resume_key, supersede=True, owner=owner)
                assert await refusal(parent, "child") == await refusal(parent, "unknown")
                # Nor is it the other's: it was not first entered under it.
                assert (await refusal(other, "child"))["code"] == "UNKNOWN_SUBAGENT"
            await host.enter(agent_id="child", resume_key=child.resume_key, supersede=True, owner=parent)
            assert (await steer(parent, "child"))["route"] == "wakeup"


@requirement("steer:finished")
async def test_a_finished_one_shot_subagent_is_refused_and_nothing_is_started(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, mode="one-shot")
            await child.exit()
            before = world.events
            assert (await refusal(parent, child.id))["code"] == "SUBAGENT_FINISHED"
            assert (await refusal(parent, child.id, mode="turn"))["code"] == "SUBAGENT_FINISHED"
            assert world.events == before
            assert (await parent.watch(seen=0)).resume == []


@requirement("steer:closing")
async def test_a_one_shot_subagent_between_its_last_turn_and_its_exit_is_closing(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, mode="one-shot")
            assert (await steer(parent, child.id, "Before its first step."))["route"] == "wakeup"
            assert texts(await child.next(turn=0, at="begin", after=0)) == ["Before its first step."]
            assert (await steer(parent, child.id, "In its last step."))["route"] == "step"
            assert texts(await child.next(turn=1, at="end", after=1)) == ["In its last step."]
            assert not (await child.next(turn=1, at="end", after=2)).open
            assert (await refusal(parent, child.id))["code"] == "SUBAGENT_CLOSING"
            assert not (await child.next(turn=1, at="idle", after=2)).open
            assert (await refusal(parent, child.id, mode="turn"))["code"] == "SUBAGENT_CLOSING"
            assert (await child.next(turn=1, at="begin", after=2)).open
            assert (await steer(parent, child.id))["route"] == "step"


@requirement("steer:closing")
async def test_a_one_shot_subagent_with_a_turn_before_it_is_not_closing(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, mode="one-shot")
            await child.next(turn=0, at="begin", after=0)
            await steer(parent, child.id, "Instead.", "turn")
            assert not (await child.next(turn=1, at="end", after=0)).open
            assert (await steer(parent, child.id, "And then."))["route"] == "wakeup"
            assert texts(await child.next(turn=1, at="idle", after=0)) == ["Instead."]


# --- order -----------------------------------------------------------------------------------------------------------


@requirement("steer:order")
async def test_messages_of_three_tasks_are_read_in_the_order_accepted_across_steps_and_turns(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent)
            await child.next(turn=0, at="begin", after=0)
            accepted: list[tuple[int, str]] = []

            async def send(name: str, mode: str) -> None:
                receipt = await steer(parent, child.id, name, mode)
                accepted.append((receipt["queued_ahead"], name))

            async with anyio.create_task_group() as group:
                group.start_soon(send, "A", "step")
                group.start_soon(send, "B", "step")
            async with anyio.create_task_group() as group:
                group.start_soon(send, "C", "turn")
            assert [ahead for ahead, _ in sorted(accepted)] == [0, 1, 2]
            order = [name for _, name in sorted(accepted)]
            assert not (await child.next(turn=1, at="end", after=0)).open
            reading = await child.next(turn=1, at="idle", after=0)
            assert texts(reading) == order
            assert [message.seq for message in reading.messages] == [1, 2, 3]


@requirement("steer:order")
async def test_a_turn_opens_with_the_unconfirmed_then_all_steps_then_one_of_the_turns(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent)
            for name in ("turn 1", "turn 2", "turn 3"):
                await steer(parent, child.id, name)
            assert texts(await child.next(turn=0, at="idle", after=0)) == ["turn 1"]
            receipts = [await steer(parent, child.id, name) for name in ("step 1", "step 2")]
            last = await steer(parent, child.id, "turn 4", "turn")
            assert [receipt["queued_ahead"] for receipt in receipts] == [1, 2]
            assert last["queued_ahead"] == 5
            assert not (await child.next(turn=1, at="end", after=0)).open
            # Not confirmed: it comes again, under its number, before everything else.
            reading = await child.next(turn=1, at="begin", after=0)
            assert texts(reading) == ["turn 1", "step 1", "step 2", "turn 2"]
            assert [message.seq for message in reading.messages] == [1, 2, 3, 4]
            assert not (await child.next(turn=2, at="end", after=4)).open
            assert texts(await child.next(turn=2, at="idle", after=4)) == ["turn 3"]


@requirement("steer:last-look")
async def test_what_is_accepted_before_a_turn_closes_is_read_in_it_and_later_opens_the_next(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent)
            await child.next(turn=0, at="begin", after=0)
            await steer(parent, child.id, "At the last moment.")
            reading = await child.next(turn=1, at="end", after=0)
            assert (reading.open, texts(reading)) == (True, ["At the last moment."])
            assert not (await child.next(turn=1, at="end", after=1)).open
            assert (await steer(parent, child.id, "Too late for that."))["route"] == "wakeup"
            assert texts(await child.next(turn=1, at="idle", after=1)) == ["Too late for that."]


# --- the same call again ---------------------------------------------------------------------------------------------


@requirement("steer:retry")
@pytest.mark.parametrize("key", ["steersman/idempotencyKey", "claudecode/toolUseId", "callId"])
async def test_a_retried_call_is_delivered_once_and_gets_the_first_result(connect: Connect, key: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter(agent_id="parent")
            child = await host.enter(owner=parent, mode="one-shot")
            first = await steer(parent, child.id, **{key: "k"})
            assert await steer(parent, child.id, **{key: "k"}) == first
            assert (await steer(parent, child.id, **{key: "other"}))["queued_ahead"] == 1
            again = await host.enter(agent_id="parent", resume_key=parent.resume_key, supersede=True)
            await child.exit()
            assert await steer(again, child.id, **{key: "k"}) == first
            changed = await again.call_tool("steer_subagent", arguments(child.id, "Else.", None), meta={key: "k"})
            assert code(changed) == "INVALID_ARGUMENTS"
            assert "used before" in error(changed)["reason"]


@requirement("steer:retry")
async def test_a_call_id_belongs_to_its_agent_and_its_tool_and_is_looked_at_after_authorization(
    connect: Connect,
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            one, two = await host.enter(), await host.enter()
            child, other = await host.enter(agent_id="child", owner=one), await host.enter(owner=two)
            await steer(one, child.id, **{"callId": "k"})
            assert (await steer(two, other.id, **{"callId": "k"}))["queued_ahead"] == 0
            assert (await host.request("steersman/agents/send", sent(one, child.id), key="k"))["queued_ahead"] == 1
            await host.enter(agent_id="child", resume_key=child.resume_key, supersede=True)
            refused = await one.call_tool(
                "steer_subagent", arguments(child.id, "Look here.", None), meta={"callId": "k"}
            )
            assert code(refused) == "UNKNOWN_SUBAGENT"


@requirement("steer:retry")
async def test_a_host_message_sent_twice_under_one_key_is_one(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter(agent_id="parent")
            child = await host.enter(owner=parent)
            first = await host.request("steersman/agents/send", sent(parent, child.id), key="k")
            again = await host.enter(agent_id="parent", resume_key=parent.resume_key, supersede=True)
            assert await host.request("steersman/agents/send", sent(again, child.id), key="k") == first
            with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                await host.request("steersman/agents/send", {**sent(again, child.id), "text": "Else."}, key="k")
            assert texts(await child.next(turn=0, at="idle", after=0)) == ["Look here."]


def sent(agent: Agent, target: str) -> dict[str, Any]:
    return {"credential": agent.credential, "agent_id": target, "text": "Look here.", "at": "step"}


@requirement("steer:retry")
@over("memory")
async def test_the_newest_call_ids_of_an_agent_are_kept(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "KEPT_RECEIPTS", 2)
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            receipts = [await steer(parent, child.id, callId=name) for name in ("a", "b", "c")]
            assert await steer(parent, child.id, callId="c") == receipts[2]
            assert await steer(parent, child.id, callId="b") == receipts[1]
            assert (await steer(parent, child.id, callId="a"))["queued_ahead"] == 3


# --- what cannot be delivered any more -------------------------------------------------------------------------------


@requirement("steer:missed")
@pytest.mark.parametrize("outcome", ["completed", "failed", "aborted"])
async def test_what_waits_for_a_one_shot_subagent_that_ends_is_missed_and_its_sender_is_told(
    connect: Connect, outcome: Any
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, mode="one-shot")
            await child.next(turn=0, at="begin", after=0)
            read = await steer(parent, child.id, "Read.")
            assert texts(await child.next(turn=1, at="step", after=0)) == ["Read."]
            await child.next(turn=1, at="step", after=1)
            handed_out = await steer(parent, child.id, "Handed out.")
            await child.next(turn=1, at="step", after=1)
            waiting = [await steer(parent, child.id, "Step."), await steer(parent, child.id, "Turn.", "turn")]
            missed = await child.exit(outcome)
            assert missed == [receipt["message_id"] for receipt in (handed_out, *waiting)]
            assert read["message_id"] not in missed
            about = [f"Message {message_id} to agent {child.id}" for message_id in missed]
            assert await notices(parent) == [
                (f"{about[0]} may not have been read: the agent has ended.", child.id),
                (f"{about[1]} was not delivered: the agent has ended.", child.id),
                (f"{about[2]} was not delivered: the agent has ended.", child.id),
            ]


@requirement("steer:missed")
async def test_what_waits_for_a_continuable_subagent_waits_on_when_it_exits(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, agent_id="child")
            await child.next(turn=0, at="begin", after=0)
            await steer(parent, child.id, "Step.")
            await steer(parent, child.id, "Turn.", "turn")
            assert await child.exit("failed") == []
            assert await notices(parent) == []
            assert (await parent.watch(seen=0)).resume == ["child"]
            again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
            assert texts(await again.next(turn=1, at="idle", after=0)) == ["Step.", "Turn."]


@requirement("steer:missed")
async def test_a_child_that_never_started_misses_what_it_was_sent(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            with pytest.raises(RuntimeError, match="no model"):
                await start_in_vain(host, parent)
            [(notice, about)] = await notices(parent)
            assert re.fullmatch(rf"Message msg-\w+ to agent {about} was not delivered: the agent has ended.", notice)


async def start_in_vain(host: Host, parent: Agent) -> None:
    async with host.agent(owner=parent, mode="one-shot") as child:
        await steer(parent, child.id)
        raise RuntimeError("no model")


@requirement("steer:missed")
@over("memory", "stdio")
async def test_a_one_shot_subagent_whose_connection_is_gone_misses_what_waits(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter(agent_id="parent")
            async with world.client() as elsewhere:
                child = await Host(elsewhere).enter(owner=parent, mode="one-shot")
                await steer(parent, child.id)
            while not await notices_waiting(parent):
                await anyio.lowlevel.checkpoint()
            assert len(await notices(parent)) == 1


async def notices_waiting(agent: Agent) -> bool:
    return (await agent.watch(seen=0)).waiting > 0


@requirement("steer:missed")
async def test_a_notice_waits_for_a_sender_that_is_gone_and_wakes_nobody(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            grandparent = await host.enter()
            parent = await host.enter(owner=grandparent, agent_id="parent")
            child = await host.enter(owner=parent, mode="one-shot")
            await steer(parent, child.id)
            await parent.exit()
            await child.exit()
            assert (await grandparent.watch(seen=0)).resume == []
            again = await host.enter(owner=grandparent, agent_id="parent", resume_key=parent.resume_key)
            assert not (await again.next(turn=0, at="idle", after=0)).open
            assert (await again.watch(seen=0)).waiting == 1
            # It is read with whatever opens a turn, and holds none open that has begun to read it.
            await steer(grandparent, "parent", "Go on.")
            reading = await again.next(turn=0, at="idle", after=0)
            assert [message.kind for message in reading.messages] == ["notice", "agent"]


@requirement("steer:missed")
async def test_a_notice_is_read_before_a_turn_of_its_reader_closes(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            child = await host.enter(owner=parent, mode="one-shot")
            await parent.next(turn=0, at="begin", after=0)
            await steer(parent, child.id)
            await child.exit()
            reading = await parent.next(turn=1, at="end", after=0)
            assert (reading.open, [message.kind for message in reading.messages]) == (True, ["notice"])
            assert not (await parent.next(turn=1, at="end", after=1)).open


@requirement("steer:missed")
async def test_a_finished_sender_is_told_nothing_and_its_own_notices_end_with_it(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            root = await host.enter()
            parent = await host.enter(owner=root, mode="one-shot")
            first = await host.enter(owner=parent, mode="one-shot")
            second = await host.enter(owner=parent, mode="one-shot")
            await steer(parent, first.id)
            await steer(parent, second.id)
            await first.exit()
            assert await parent.exit() == []
            assert len(await second.exit()) == 1
            assert await notices(root) == []


@requirement("steer:missed")
async def test_what_was_accepted_from_an_owner_that_exits_is_read_all_the_same(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            await child.next(turn=0, at="begin", after=0)
            await steer(parent, child.id, "My last word.")
            await parent.exit()
            reading = await child.next(turn=1, at="step", after=0)
            assert [(message.text, message.agent_id) for message in reading.messages] == [("My last word.", parent.id)]


# --- the host's own methods ------------------------------------------------------------------------------------------


@requirement("steer:interrupt")
async def test_an_interrupt_stops_the_turn_of_a_deeper_subagent_and_keeps_its_mailbox(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            root = await host.enter()
            child = await host.enter(owner=root)
            grandchild = await host.enter(owner=child)
            assert await root.interrupt(grandchild.id) is None
            await grandchild.next(turn=0, at="begin", after=0)
            await steer(child, grandchild.id, "Kept.")
            assert await root.interrupt(grandchild.id) == 1
            assert await root.interrupt(grandchild.id) == 1
            assert (await grandchild.watch(seen=0)).interrupt_turn == 1
            reading = await grandchild.next(turn=1, at="step", after=0)
            assert (reading.open, reading.interrupted, reading.messages) == (True, True, [])
            reading = await grandchild.next(turn=1, at="end", after=0)
            assert (reading.open, reading.interrupted, reading.messages) == (False, True, [])
            assert (await grandchild.watch(seen=0)).interrupt_turn is None
            reading = await grandchild.next(turn=1, at="idle", after=0)
            assert (reading.interrupted, texts(reading)) == (False, ["Kept."])


@requirement("steer:interrupt")
async def test_an_interrupt_reaches_nobody_above_beside_or_elsewhere(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            root = await host.enter()
            one, two = await host.enter(owner=root), await host.enter(owner=root)
            for agent in (root, one, two):
                await agent.next(turn=0, at="begin", after=0)
            for target in (root.id, two.id, one.id, "unknown"):
                with pytest.raises(HostMethodError, match="UNKNOWN_SUBAGENT"):
                    await one.interrupt(target)
            assert [(await agent.watch(seen=0)).interrupt_turn for agent in (root, one, two)] == [None] * 3


# --- limits ----------------------------------------------------------------------------------------------------------


@requirement("steer:limits")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x" * (256 * 1024 + 1), "LIMIT_EXCEEDED"),
        ("\x00" * (200 * 1024), "LIMIT_EXCEEDED"),
        ("", "INVALID_ARGUMENTS"),
        (" \n\t", "INVALID_ARGUMENTS"),
    ],
    ids=["too long", "too long as JSON", "empty", "blank"],
)
async def test_a_message_has_words_and_a_length(connect: Connect, message: str, expected: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            assert (await refusal(parent, child.id, message))["code"] == expected
            with pytest.raises(HostMethodError, match=expected):
                await parent.send(child.id, message)


@requirement("steer:limits")
async def test_what_does_not_fit_one_reply_is_read_at_the_next_boundaries_in_order(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            await child.next(turn=0, at="begin", after=0)
            sent_texts = [str(number) * (256 * 1024) for number in range(7)]
            for each in sent_texts:
                await steer(parent, child.id, each)
            read: list[str] = []
            after = 0
            while True:
                reading = await child.next(turn=1, at="end", after=after)
                if not reading.open:
                    break
                assert 1 <= len(reading.messages) <= 3
                after = reading.messages[-1].seq
                read += texts(reading)
            assert read == sent_texts


@requirement("steer:limits")
@over_http
async def test_many_small_messages_fit_the_replies_they_come_in(connect: Connect) -> None:
    with anyio.fail_after(20):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter(agent_id="\U0001f469" * 128)
            child = await host.enter(owner=parent)
            await child.next(turn=0, at="begin", after=0)
            accepted = world.services.registry.get("local", child.id)
            live = world.services.registry.get("local", parent.id)
            assert accepted is not None
            assert live is not None
            assert live.current is not None
            for _ in range(1500):
                await world.services.steering.steer(live.current, child.id, "x" * 180, "step")
            after, count = 0, 0
            while (reading := await child.next(turn=1, at="end", after=after)).open:
                count += len(reading.messages)
                after = reading.messages[-1].seq
            assert count == 1500


@requirement("steer:limits")
@over("memory")
async def test_notices_leave_room_for_what_others_send(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "MAX_WAITING", 2)
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            root = await host.enter()
            parent = await host.enter(owner=root)
            for _ in range(2):
                gone = await host.enter(owner=parent, mode="one-shot")
                await steer(parent, gone.id)
                await steer(parent, gone.id)
                await gone.exit()
            assert (await steer(root, parent.id))["queued_ahead"] == 4


@requirement("steer:limits")
@over("memory")
async def test_a_refusal_lists_so_many_subagents_and_leaves_finished_ones_out_first(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "MAX_LISTED", 2)
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            await host.enter(owner=parent, agent_id="old and alive".replace(" ", "-"))
            for name in ("finished-1", "finished-2"):
                agent = await host.enter(owner=parent, agent_id=name, mode="one-shot")
                await agent.exit()
            listed = (await refusal(parent, "unknown"))["subagents"]
            assert [line["id"] for line in listed] == ["old-and-alive", "finished-2"]


@requirement("steer:limits")
@over_http
async def test_the_heaviest_message_there_is_arrives(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            heavy = "\x01" * (128 * 1024 - 1)
            await steer(parent, child.id, heavy)
            assert texts(await child.next(turn=0, at="idle", after=0)) == [heavy]


@requirement("steer:limits")
@over("memory")
async def test_a_mailbox_holds_so_many_messages_and_so_much_text(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "MAX_WAITING", 3)
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent = await Host(client).enter()
            child = await Host(client).enter(owner=parent)
            for _ in range(3):
                await steer(parent, child.id)
            found = await refusal(parent, child.id)
            assert (found["code"], "3 messages" in found["reason"]) == ("LIMIT_EXCEEDED", True)
            # What is handed out and not confirmed counts still.
            await child.next(turn=0, at="idle", after=0)
            assert (await refusal(parent, child.id))["code"] == "LIMIT_EXCEEDED"
            await child.next(turn=1, at="step", after=1)
            assert (await steer(parent, child.id))["queued_ahead"] == 0
            monkeypatch.setattr(steering, "MAX_WAITING_CHARACTERS", 60)
            assert (await refusal(parent, child.id, "x" * 40))["code"] == "LIMIT_EXCEEDED"
