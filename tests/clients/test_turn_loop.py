"""`TurnLoop`: every message reaches the step function once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from steersman_client import Agent, Host, HostMethodError, Step, TurnLoop
from tests.faults import Fault, Faults
from tests.requirements import requirement
from tests.world import Connect, World, code, over_http

pytestmark = pytest.mark.anyio

NEXT = "steersman/agents/next"


class Work:
    """A step function that does as a test tells it, step by step."""

    def __init__(self) -> None:
        self.transcript: list[str] = []
        self.steps: list[Step] = []
        self.cancelled = 0
        self._begun = anyio.Event()
        self._go = anyio.Event()
        self._result: bool | Exception = False

    async def __call__(self, step: Step) -> bool:
        self.transcript.extend(message.text for message in step.messages)
        self.steps.append(step)
        self._begun.set()
        try:
            await self._go.wait()
        except BaseException:
            self.cancelled += 1
            raise
        self._go = anyio.Event()
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    async def begun(self, number: int) -> Step:
        """Wait until so many steps have begun in all."""
        while len(self.steps) < number:
            self._begun = anyio.Event()
            await self._begun.wait()
        return self.steps[number - 1]

    def finish(self, result: bool | Exception) -> None:
        """End the step that runs: with another one to come, with none, or with an exception."""
        self._result = result
        self._go.set()


def counting(transcript: list[str], last: int) -> Callable[[Step], Any]:
    """A step function that never waits."""

    async def count(step: Step) -> bool:
        transcript.extend(message.text for message in step.messages)
        transcript.append(str(step.number))
        return step.number < last

    return count


async def family(host: Host, **child: Any) -> tuple[Agent, Agent]:
    parent = await host.enter(agent_id="parent")
    return parent, await host.enter(agent_id="child", owner=parent, **child)


# --- steps and turns -------------------------------------------------------------------------------------------------


@requirement("loop:steps")
async def test_a_steer_is_read_before_the_next_step_and_the_finished_ones_are_kept(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            parent, child = await family(Host(client))
            work = Work()
            group.start_soon(TurnLoop(child, work).turn)
            await work.begun(1)
            work.finish(True)
            await work.begun(2)
            await parent.send("child", "Stop at two.")
            assert work.transcript == []
            work.finish(True)
            step = await work.begun(3)
            assert (step.turn, step.number) == (1, 3)
            assert work.transcript == ["Stop at two."]
            work.finish(False)


@requirement("loop:steps")
async def test_what_arrives_at_the_last_moment_is_read_in_an_extra_step(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            parent, child = await family(Host(client))
            work = Work()
            group.start_soon(TurnLoop(child, work).turn)
            await work.begun(1)
            await parent.send("child", "One more thing.")
            work.finish(False)
            step = await work.begun(2)
            assert (step.turn, step.number, work.transcript) == (1, 2, ["One more thing."])
            work.finish(False)


@requirement("loop:steps")
async def test_a_loop_waits_for_work_and_runs_a_turn_for_each_message(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            transcript: list[str] = []
            async with anyio.create_task_group() as group:
                group.start_soon(TurnLoop(child, counting(transcript, 1)).run)
                for name in ("A", "B", "C"):
                    await parent.send("child", name)
                while len(transcript) < 6:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            assert [entry for entry in transcript if entry.isalpha()] == ["A", "B", "C"]


@requirement("loop:steps")
async def test_drain_runs_what_waits_and_returns(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client), mode="one-shot")
            transcript: list[str] = []
            loop = TurnLoop(child, counting(transcript, 2))
            turn = await loop.turn()
            assert (turn.number, turn.steps, turn.interrupted) == (1, 2, False)
            assert await loop.drain() == []
            with pytest.raises(HostMethodError, match="SUBAGENT_CLOSING"):
                await parent.send("child", "Too late.")


@requirement("loop:steps")
async def test_a_step_is_told_of_plan_mode(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            agent = await Host(client).enter(plan_mode=True)
            work = Work()
            group.start_soon(TurnLoop(agent, work).turn)
            assert (await work.begun(1)).plan_mode
            await agent.set_plan_mode(False)
            work.finish(True)
            assert not (await work.begun(2)).plan_mode
            work.finish(False)


# --- interrupts ------------------------------------------------------------------------------------------------------


@requirement("loop:interrupts")
async def test_a_turn_steer_cancels_the_step_in_flight_and_opens_a_turn(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            work = Work()
            async with anyio.create_task_group() as group:
                group.start_soon(TurnLoop(child, work).run)
                await parent.send("child", "Count.")
                await work.begun(1)
                await parent.send("child", "A note.")
                await parent.send("child", "Stop, and do this.", at="turn")
                step = await work.begun(2)
                assert (work.cancelled, step.turn, step.number) == (1, 2, 1)
                assert work.transcript == ["Count.", "A note.", "Stop, and do this."]
                group.cancel_scope.cancel()


@requirement("loop:interrupts")
async def test_an_interrupted_turn_is_told_as_such_and_nothing_goes_on(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            work = Work()
            turns: list[Any] = []

            async def run() -> None:
                loop = TurnLoop(child, work)
                turns.append(await loop.turn())
                turns.append(await loop.drain())

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await work.begun(1)
                assert await parent.interrupt("child") == 1
            assert (turns[0].number, turns[0].steps, turns[0].interrupted) == (1, 1, True)
            assert turns[1] == []
            assert len(work.steps) == 1


@requirement("loop:interrupts")
async def test_an_interrupt_between_two_steps_begins_no_further_one(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            steps: list[Step] = []

            async def interrupt_itself(step: Step) -> bool:
                steps.append(step)
                with anyio.CancelScope(shield=True):
                    await parent.interrupt("child")
                return True

            turn = await TurnLoop(child, interrupt_itself).turn()
            assert (turn.steps, turn.interrupted, len(steps)) == (1, True, 1)


@requirement("loop:interrupts")
async def test_an_interrupt_that_is_known_before_a_step_begins_lets_none_begin(connect: Connect) -> None:
    faults = Faults()
    with anyio.fail_after(5):
        async with connect() as world, world.client(faults=faults) as client, world.client() as undisturbed:
            parent = await Host(undisturbed).enter()
            child = await Host(client).enter(owner=parent)
            transcript: list[str] = []
            turns: list[Any] = []

            loop = TurnLoop(child, counting(transcript, 1))

            async def run() -> None:
                turns.append(await loop.turn())

            faults.plan(NEXT, "hold reply", "hold reply")
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                for _ in range(2):
                    # The second time it is the last look before the first step that is on its way back.
                    while not faults.holding:
                        await anyio.lowlevel.checkpoint()
                    if faults.happened == 2:
                        await parent.interrupt(child.id)
                        while vars(loop)["_interrupted"] is None:
                            await anyio.lowlevel.checkpoint()
                    faults.release()
                    while faults.holding:
                        await anyio.lowlevel.checkpoint()
            assert (turns[0].steps, turns[0].interrupted, transcript) == (0, True, [])


@requirement("loop:interrupts")
async def test_a_cancelled_host_is_not_an_interrupt(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            work = Work()
            async with anyio.create_task_group() as group:
                group.start_soon(TurnLoop(child, work).turn)
                await work.begun(1)
                group.cancel_scope.cancel()
            assert work.cancelled == 1
            assert (await parent.send("child", "Still there?"))["route"] == "step"


# --- ways to end -----------------------------------------------------------------------------------------------------


@requirement("loop:ends")
@pytest.mark.parametrize("mode", ["continuable", "one-shot"])
async def test_however_a_turn_ends_what_waits_is_read_later_or_reported_missed(connect: Connect, mode: Any) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent = await host.enter()
            for end in ("done", "model-error", "cancelled"):
                work = Work()

                async def run(label: str = end, work: Work = work) -> None:
                    async with host.agent(agent_id=label, owner=parent, mode=mode) as agent:
                        await TurnLoop(agent, work).turn()

                sent: list[str] = []
                with anyio.CancelScope() as scope:
                    try:
                        async with anyio.create_task_group() as group:
                            group.start_soon(run)
                            await work.begun(1)
                            for name in ("A", "B"):
                                receipt = await parent.send(end, name)
                                sent.append(receipt["message_id"])
                            match end:
                                case "done":
                                    work.finish(False)
                                    await work.begun(2)
                                    work.finish(False)
                                case "model-error":
                                    work.finish(RuntimeError("overloaded"))
                                case _:
                                    scope.cancel()
                    except* RuntimeError:
                        assert end == "model-error"
                shown = {agent["agent_id"]: agent for agent in (await host.agents())[0]["subagents"]}[end]
                assert shown["status"] == ("stored" if mode == "continuable" else "finished")
                if end == "done":
                    assert work.transcript == ["A", "B"]
                else:
                    assert work.transcript == []
                    assert shown["waiting"] == (2 if mode == "continuable" else 0)
            notices = (await parent.next(turn=0, at="begin", after=0)).messages
            assert len(notices) == (0 if mode == "continuable" else 4)


@requirement("loop:ends")
async def test_a_failed_step_may_be_run_again_and_the_loop_goes_on_in_its_turn(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            parent, child = await family(Host(client))
            work = Work()
            loop = TurnLoop(child, work)

            async def run() -> None:
                with pytest.raises(RuntimeError, match="overloaded"):
                    await loop.turn()
                await loop.turn()

            group.start_soon(run)
            await work.begun(1)
            await parent.send("child", "Meanwhile.")
            work.finish(RuntimeError("overloaded"))
            step = await work.begun(2)
            assert (step.turn, work.transcript) == (1, ["Meanwhile."])
            work.finish(False)


@requirement("loop:ends")
async def test_the_exception_of_a_block_comes_out_as_it_is_and_the_agent_has_failed(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            with pytest.raises(RuntimeError, match="plain"):
                async with host.agent(agent_id="main"):
                    raise RuntimeError("plain")
            assert [agent["status"] for agent in await host.agents()] == ["stored"]


@requirement("loop:ends")
async def test_an_interrupted_turn_whose_step_raises_is_closed_and_the_next_loop_begins_its_own(
    connect: Connect,
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))

            begun = anyio.Event()

            async def stopped(step: Step) -> bool:
                begun.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    raise RuntimeError("the model client was cut off")

            async with anyio.create_task_group() as group:

                async def run() -> None:
                    with pytest.raises(RuntimeError, match="cut off"):
                        await TurnLoop(child, stopped).turn()

                group.start_soon(run)
                await begun.wait()
                assert await parent.interrupt("child") == 1
            transcript: list[str] = []
            turn = await TurnLoop(child, counting(transcript, 1)).turn()
            assert (turn.number, turn.steps, turn.interrupted, transcript) == (2, 1, False, ["1"])


@requirement("loop:ends")
async def test_a_loop_runs_one_turn_at_a_time(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            _, child = await family(Host(client))
            work = Work()
            loop = TurnLoop(child, work)
            group.start_soon(loop.turn)
            await work.begun(1)
            with pytest.raises(RuntimeError, match="runs already"):
                await loop.drain()
            work.finish(False)


# --- lost, late and repeated replies ---------------------------------------------------------------------------------


@requirement("loop:faults")
@pytest.mark.parametrize("fault", ["lose request", "lose reply", "repeat reply"])
@pytest.mark.parametrize("count", [1, 3])
async def test_each_message_is_given_once_though_replies_are_lost_and_repeated(
    connect: Connect, fault: Fault, count: int
) -> None:
    faults = Faults()
    with anyio.fail_after(5):
        async with connect() as world, world.client(faults=faults) as client, world.client() as undisturbed:
            parent = await Host(undisturbed).enter()
            host = Host(client, retry_delays=(0, 0, 0))
            planned: list[Fault] = [fault] * count
            faults.plan("steersman/agents/enter", *planned)
            child = await host.enter(owner=parent)
            transcript: list[str] = []
            loop = TurnLoop(child, counting(transcript, 2))
            faults.plan(NEXT, *planned)
            await parent.send(child.id, "First.")
            turns = [await loop.turn()]
            for method in (NEXT, "steersman/agents/watch"):
                faults.plan(method, *planned)
            await parent.send(child.id, "Second.")
            turns += await loop.drain()
            assert transcript == ["First.", "1", "2", "Second.", "1", "2"]
            assert [(turn.steps, turn.interrupted) for turn in turns] == [(2, False), (2, False)]
            faults.plan("steersman/agents/exit", *planned)
            await child.exit()
            assert faults.happened >= 3


@requirement("loop:faults")
@pytest.mark.parametrize("fault", ["lose request", "lose reply"])
async def test_a_message_of_the_host_whose_reply_was_lost_is_sent_once(connect: Connect, fault: Fault) -> None:
    faults = Faults()
    with anyio.fail_after(5):
        async with connect() as world, world.client(faults=faults) as client:
            parent, child = await family(Host(client, retry_delays=(0, 0)))
            faults.plan("steersman/agents/send", fault, fault)
            receipt = await parent.send("child", "Once.")
            reading = await child.next(turn=0, at="idle", after=0)
            assert [(message.id, message.text) for message in reading.messages] == [(receipt["message_id"], "Once.")]


@requirement("loop:faults")
@pytest.mark.parametrize("fault", ["lose request", "lose reply"])
async def test_an_id_whose_first_entry_had_its_reply_lost_is_entered(connect: Connect, fault: Fault) -> None:
    faults = Faults()
    with anyio.fail_after(5):
        async with connect() as world, world.client(faults=faults) as client:
            host = Host(client, retry_delays=(0, 0))
            faults.plan("steersman/agents/enter", fault, fault)
            agent = await host.enter(agent_id="main")
            assert (await agent.watch(seen=0)).waiting == 0
            with pytest.raises(HostMethodError, match="RESUME_KEY_REQUIRED"):
                await host.enter(agent_id="main")


@requirement("loop:faults")
@pytest.mark.parametrize("tool", ["steer_subagent", "ask_user_question"])
async def test_text_that_cannot_be_sent_is_refused_and_the_connection_lives(connect: Connect, tool: str) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            result = await parent.call_tool(tool, {"subagent_id": "child", "message": "half an emoji \ud83d"})
            assert code(result) == "INVALID_ARGUMENTS"
            with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                await parent.send("child", "\ud83d")
            await parent.send("child", "\U0001f600")
            assert len((await child.next(turn=0, at="idle", after=0)).messages) == 1


@requirement("loop:faults")
async def test_what_the_server_hands_out_again_is_not_given_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            await parent.send("child", "Once.")
            original, asked = child.next, list[str]()

            async def forgetful(*, turn: int, at: Any, after: int, wait: float = 0) -> Any:
                asked.append(at)
                return await original(turn=turn, at=at, after=after if at == "end" else 0, wait=wait)

            monkeypatch.setattr(child, "next", forgetful)
            transcript: list[str] = []
            await TurnLoop(child, counting(transcript, 3)).drain()
            assert transcript == ["Once.", "1", "2", "3"]
            assert asked.count("step") == 2


@requirement("loop:faults")
async def test_a_reply_that_stays_away_fails_the_call_and_loses_nothing(connect: Connect) -> None:
    faults = Faults()
    with anyio.fail_after(5):
        async with connect() as world, world.client(faults=faults) as client:
            parent, child = await family(Host(client, retry_delays=(0,)))
            await parent.send("child", "Kept.")
            transcript: list[str] = []
            loop = TurnLoop(child, counting(transcript, 1))
            faults.plan(NEXT, "lose reply", "lose reply")
            with pytest.raises(MCPError, match="timed out"):
                await loop.drain()
            assert transcript == []
            await loop.drain()
            assert transcript == ["Kept.", "1"]


# --- entered again ---------------------------------------------------------------------------------------------------


@requirement("loop:re-entry")
@over_http
async def test_a_loop_whose_lease_ran_out_during_a_step_goes_on_and_reads_each_message_once(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, anyio.create_task_group() as group:
            host = Host(client)
            parent, child = await family(host, mode="one-shot")
            work = Work()
            first = child.credential
            group.start_soon(TurnLoop(child, work).turn)
            await parent.send("child", "First.")
            await work.begun(1)
            await lapse(world, child)
            await parent.send("child", "Second.")
            work.finish(True)
            step = await work.begun(2)
            # The work goes on in a new turn, of a new activation.
            assert (step.turn, step.number, child.credential != first) == (2, 2, True)
            assert sorted(work.transcript) == ["First.", "Second."]
            work.finish(False)


async def lapse(world: World, agent: Agent) -> None:
    """Have the lease of one agent run out, though its host watches it."""
    found = world.services.registry.get("local", agent.id)
    assert found is not None
    activation = found.current
    assert activation is not None
    world.services.registry._leases.expire_at(activation, 0)  # pyright: ignore[reportPrivateUsage]
    assert not world.services.registry.is_live(activation)


@requirement("loop:re-entry")
@over_http
async def test_an_owner_and_its_subagent_whose_leases_ran_out_both_come_back(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            parent, child = await family(Host(client))
            world.clock.advance(91)
            transcript: list[str] = []
            turn = await TurnLoop(child, counting(transcript, 1)).turn()
            assert (turn.steps, transcript) == (1, ["1"])
            assert (await parent.send("child", "Back again."))["route"] == "wakeup"


@requirement("loop:re-entry")
async def test_a_loop_that_was_replaced_stops_its_step_and_says_so(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            work = Work()
            refused: list[str] = []

            async def run() -> None:
                with pytest.raises(HostMethodError) as refusal:
                    await TurnLoop(child, work).turn()
                refused.append(refusal.value.code)

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await work.begun(1)
                await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent, supersede=True)
            assert (refused, work.cancelled) == (["CALLER_NOT_LIVE"], 1)
            assert (await parent.send("child", "For the new one."))["route"] == "wakeup"


@requirement("loop:re-entry")
async def test_an_agent_that_was_ended_here_is_not_entered_again(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            agent = await host.enter()
            await agent.exit()
            with pytest.raises(HostMethodError, match="CALLER_NOT_LIVE"):
                await TurnLoop(agent, counting([], 1)).turn()
            assert [shown["status"] for shown in await host.agents()] == ["stored"]


@requirement("loop:re-entry")
async def test_a_new_loop_goes_on_after_what_its_transcript_has(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            await parent.send("child", "First.")
            reading = await child.next(turn=0, at="idle", after=0)
            await parent.send("child", "Second.")
            await child.next(turn=1, at="step", after=0)
            # The host died with the first message in its transcript, and both handed out.
            again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent, supersede=True)
            transcript: list[str] = []
            loop = TurnLoop(again, counting(transcript, 1), after=reading.messages[0].seq)
            await loop.drain()
            assert (transcript, loop.after) == (["Second.", "1"], 2)


# --- the owner's side ------------------------------------------------------------------------------------------------


@requirement("loop:resume")
async def test_a_loop_tells_its_host_whom_to_resume_once_each_time(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            await child.exit()
            asked: list[str] = []
            called = [anyio.Event(), anyio.Event()]

            def resume(agent_id: str) -> None:
                asked.append(agent_id)
                called[len(asked) - 1].set()

            async with anyio.create_task_group() as group:
                group.start_soon(TurnLoop(parent, counting([], 1), resume=resume).run)
                await parent.send("child", "Come back.")
                await called[0].wait()
                await parent.send("child", "And bring this.")
                again = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
                transcript: list[str] = []
                await TurnLoop(again, counting(transcript, 1)).drain()
                assert transcript == ["Come back.", "1", "And bring this.", "1"]
                assert asked == ["child"]
                await again.exit()
                await parent.send("child", "Once more.")
                await called[1].wait()
                group.cancel_scope.cancel()
            assert asked == ["child", "child"]


@requirement("loop:resume")
async def test_a_host_is_told_again_though_it_saw_nothing_in_between(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            asked: list[str] = []
            loop = TurnLoop(parent, counting([], 1), resume=asked.append)
            for number in (1, 2):
                await child.exit()
                await parent.send("child", "Come back.")
                work = Work()
                loop._function = work  # pyright: ignore[reportPrivateUsage]
                async with anyio.create_task_group() as group:
                    group.start_soon(loop.turn)
                    await work.begun(1)
                    while len(asked) < number:
                        await anyio.lowlevel.checkpoint()
                    work.finish(False)
                child = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
                await TurnLoop(child, counting([], 1)).drain()
            assert asked == ["child", "child"]


@requirement("watch:state")
async def test_a_state_that_came_back_with_another_message_is_another_one(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            host = Host(client)
            parent, child = await family(host)
            seen: list[Any] = []
            for _ in range(2):
                await child.exit()
                await parent.send("child", "Come back.")
                seen.append(await parent.watch(seen=0))
                child = await host.enter(agent_id="child", resume_key=child.resume_key, owner=parent)
                await TurnLoop(child, counting([], 1)).drain()
            assert seen[0].resume == seen[1].resume == ["child"]
            assert seen[0].version != seen[1].version


@requirement("loop:lease")
@over_http
async def test_a_block_keeps_the_lease_of_an_agent_that_does_nothing(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client, Host(client).agent() as agent:
            for _ in range(3):
                await world.clock.until_sleepers()
                world.clock.advance(89)
            await world.clock.until_sleepers()
            assert (await agent.watch(seen=0)).waiting == 0
