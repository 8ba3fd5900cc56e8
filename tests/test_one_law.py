"""The one law of steering: an accepted message is delivered, or its sender is told that it was not.

A state machine drives the shipped loop and the shipped server, with hosts that crash, leases that run out, activations
that replace each other, and a transport that loses, holds back and repeats replies.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from steersman.journal import MemoryJournal, MessageAccepted
from steersman.mailboxes import Mailbox, Mailboxes
from steersman.registry import Agent as Known
from steersman.registry import AgentRegistry, Binding
from steersman.server import Bindings, make_server
from steersman.services import Services, make_services
from steersman.steering import Steering
from steersman_client import Agent, Host, HostMethodError, Message, Step, TurnLoop
from tests.clock import ManualClock
from tests.driver import Driver
from tests.faults import FAULTS, Faults
from tests.requirements import requirement

METHODS = [f"steersman/agents/{name}" for name in ("enter", "next", "watch", "send", "exit")]
SLOTS = ["continuable", "one-shot"]
"""One subagent of each kind at a time; after a one-shot one has finished, the next takes its place."""


class _LeasedBindings:
    """Connections in memory whose agents have a lease, as over HTTP: a host that dies is found out by time only."""

    def __init__(self, services: Services) -> None:
        self._reached = services, services.registry.connect("local", "test", leased=True)

    async def of(self, ctx: object) -> tuple[Services, Binding]:
        return self._reached


@dataclass
class Record:
    """What one subagent was given, by all its loops, and what is kept for the next one."""

    name: str
    given: list[Message] = field(default_factory=list[Message])
    after: int = 0

    @property
    def mode(self) -> Any:
        return self.name.partition("/")[0]


class Process:
    """A host process that runs one subagent with the shipped loop, and may crash."""

    def __init__(self, record: Record, *, remembers: bool, obedient: bool = False) -> None:
        self.record = record
        self.faults = Faults()
        self.scope = anyio.CancelScope()
        self.in_step = False
        self.ended = False
        self._given: list[Message] = []
        self._after = record.after if remembers else 0
        self._obedient = obedient
        self._go = anyio.Event()
        self._result: bool | Exception = False

    async def run(self, stage: Stage, *, begin: bool) -> None:
        try:
            async with stage.connection(self.faults) as client:
                with self.scope:
                    await self._run(Host(client, retry_delays=(0, 0, 0)), stage.boss, begin=begin)
        except* (HostMethodError, MCPError, _ModelError):
            pass  # replaced, finished, cut off, or its model failed: a host process ends
        finally:
            self.ended = True

    async def _run(self, host: Host, boss: Agent, *, begin: bool) -> None:
        record = self.record
        key = f"{record.name}-".ljust(40, "k")
        entered = host.agent(agent_id=record.name, owner=boss, mode=record.mode, resume_key=key, supersede=True)
        async with entered as agent:
            loop = TurnLoop(agent, self._step, after=self._after)
            if begin:
                await loop.turn()
            if record.mode == "one-shot":
                await loop.drain()
            else:
                await loop.run()

    async def _step(self, step: Step) -> bool:
        for message in step.messages:
            assert message.id not in {known.id for known in self._given}, "given twice by one loop"
            assert all(known.seq < message.seq for known in self._given), "out of order"
            self._given.append(message)
            self.record.given.append(message)
            self.record.after = message.seq
        if self._obedient:
            return False
        self.in_step = True
        try:
            await self._go.wait()
        finally:
            self.in_step = False
        self._go = anyio.Event()
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def finish(self, result: bool | Exception) -> None:
        self._result = result
        self._go.set()

    def crash(self) -> None:
        """Die without a word: nothing that is said on the way out arrives."""
        self.faults.cut()
        self.scope.cancel()


class _ModelError(Exception):
    pass


async def _unless_refused(call: Awaitable[object]) -> None:
    try:
        await call
    except HostMethodError as error:
        if error.code not in ("UNKNOWN_SUBAGENT", "SUBAGENT_FINISHED", "SUBAGENT_CLOSING"):
            raise


class Stage:
    """A server, the host of the agent that steers, and the processes of its subagents."""

    def __init__(self, era: str, group: TaskGroup) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal()
        self.services = make_services([], clock=self.clock, journal=self.journal)
        self.bindings = _LeasedBindings(self.services)
        self.records: dict[str, Record] = {}
        self.processes: dict[str, Process] = {}
        """The newest of each slot."""
        self.replaced: list[Process] = []
        self.boss_faults = Faults()
        self.boss: Agent = cast("Any", None)
        self._era = era
        self._group = group

    @asynccontextmanager
    async def connection(self, faults: Faults) -> AsyncGenerator[Client]:
        @asynccontextmanager
        async def lifespan(_: Server[Bindings]) -> AsyncGenerator[Bindings]:
            yield cast("Bindings", self.bindings)

        way = faults.between(InMemoryTransport(make_server(lifespan)))
        async with Client(way, mode="legacy" if self._era == "legacy" else "auto", cache=None) as client:
            yield client

    def name(self, slot: str) -> str:
        """The id of the subagent that is in a slot."""
        names = [name for name in self.records if name.startswith(slot)]
        return names[-1] if names else f"{slot}/0"

    def _next_name(self, slot: str) -> str:
        known = self.known(self.name(slot))
        return f"{slot}/{len(self.records)}" if known is not None and known.finished else self.name(slot)

    async def start(self, slot: str, *, begin: bool, remembers: bool, obedient: bool = False) -> None:
        name = self._next_name(slot)
        record = self.records.setdefault(name, Record(name))
        process = Process(record, remembers=remembers, obedient=obedient)
        if slot in self.processes:
            self.replaced.append(self.processes[slot])
        self.processes[slot] = process
        self._group.start_soon(lambda: process.run(self, begin=begin))

    async def steer(self, slot: str, mode: str, *, by_tool: bool) -> None:
        """Steer until a reply comes, as a host does that retries under its call's id."""
        name = self.name(slot)
        text, key = f"message {secrets.token_hex(4)}", secrets.token_hex(8)
        if by_tool:
            arguments = {"subagent_id": name, "message": text, "mode": mode}
            await self.boss.call_tool("steer_subagent", arguments, meta={"steersman/idempotencyKey": key})
            await self.boss.call_tool("steer_subagent", arguments, meta={"steersman/idempotencyKey": key})
            return
        await _unless_refused(self.boss.send(name, text, at=cast("Any", mode)))

    def known(self, name: str) -> Known | None:
        return self.services.registry.get("local", name)

    def box(self, name: str) -> Mailbox | None:
        known = self.known(name)
        return self.services.mailboxes.of(known) if known is not None else None

    def lapse(self, slot: str) -> None:
        """Have the lease of an agent run out in the middle of whatever it does."""
        known = self.known(self.name(slot))
        if known is not None and known.current is not None:
            registry: Any = self.services.registry
            registry._leases.expire_at(known.current, 0)
            assert known.current is None or not registry.is_live(known.current)


@asynccontextmanager
async def open_stage(era: str) -> AsyncGenerator[Stage]:
    async with anyio.create_task_group() as group:
        stage = Stage(era, group)
        async with stage.connection(stage.boss_faults) as client:
            async with Host(client, retry_delays=(0, 0, 0)).agent(agent_id="boss") as stage.boss:
                yield stage
                for process in [*stage.processes.values(), *stage.replaced]:
                    process.faults.clear()
                    process.crash()


class OneLaw(RuleBasedStateMachine):
    """Rules are what happens to agents and hosts; after each, nothing that can move has not moved."""

    @initialize(era=st.sampled_from(["legacy", "modern"]))
    def open(self, era: str) -> None:
        self.driver = Driver(lambda: open_stage(era))
        for slot in SLOTS:
            self.start_or_replace(slot, begin=True, remembers=True)

    # --- what hosts do -----------------------------------------------------------------------------------------------

    @rule(slot=st.sampled_from(SLOTS), begin=st.booleans(), remembers=st.booleans())
    def start_or_replace(self, slot: str, begin: bool, remembers: bool) -> None:
        self.driver.do(lambda stage: stage.start(slot, begin=begin, remembers=remembers))

    @rule(slot=st.sampled_from(SLOTS), result=st.sampled_from([True, True, False, False, False, _ModelError()]))
    def finish_step(self, slot: str, result: bool | Exception) -> None:
        async def finish(stage: Stage) -> None:
            if (process := stage.processes.get(slot)) is not None and process.in_step:
                process.finish(result)

        self.driver.do(finish)

    @rule(slot=st.sampled_from(SLOTS), how=st.sampled_from(["crash", "leave", "lapse"]))
    def end(self, slot: str, how: str) -> None:
        """The process dies without a word; or stops in good order, so that its agent exits; or its lease runs out."""

        async def end(stage: Stage) -> None:
            if slot not in stage.processes:
                return
            match how:
                case "crash":
                    stage.processes[slot].crash()
                case "leave":
                    stage.processes[slot].scope.cancel()
                case _:
                    stage.lapse(slot)

        self.driver.do(end)

    # --- what the steering agent does --------------------------------------------------------------------------------

    @rule(slot=st.sampled_from(SLOTS), mode=st.sampled_from(["step", "turn"]), by_tool=st.booleans())
    def steer(self, slot: str, mode: str, by_tool: bool) -> None:
        self.driver.do(lambda stage: stage.steer(slot, mode, by_tool=by_tool))

    @rule(slot=st.sampled_from(SLOTS), modes=st.lists(st.sampled_from(["step", "turn"]), min_size=2, max_size=4))
    def steer_at_once(self, slot: str, modes: list[str]) -> None:
        async def burst(stage: Stage) -> None:
            async with anyio.create_task_group() as group:
                for mode in modes:
                    group.start_soon(lambda mode=mode: stage.steer(slot, mode, by_tool=False))

        self.driver.do(burst)

    @rule(slot=st.sampled_from(SLOTS), finish=st.booleans())
    def steer_while_a_step_ends(self, slot: str, finish: bool) -> None:
        """Both at once, in the order in which the loop happens to take them."""

        async def race(stage: Stage) -> None:
            process = stage.processes.get(slot)
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: stage.steer(slot, "step", by_tool=False))
                if process is not None and process.in_step:
                    process.finish(finish)

        self.driver.do(race)

    @rule(slot=st.sampled_from(SLOTS))
    def interrupt(self, slot: str) -> None:
        self.driver.do(lambda stage: _unless_refused(stage.boss.interrupt(stage.name(slot))))

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    @rule(
        slot=st.sampled_from([*SLOTS, "boss"]),
        method=st.sampled_from(METHODS),
        faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3),
    )
    def plan_faults(self, slot: str, method: str, faults: list[Any]) -> None:
        async def plan(stage: Stage) -> None:
            if slot == "boss":
                # It waits for its own replies: none of them is held back.
                stage.boss_faults.plan(method, *(fault for fault in faults if fault != "hold reply"))
            elif slot in stage.processes:
                stage.processes[slot].faults.plan(method, *faults)

        self.driver.do(plan)

    @rule(
        seconds=st.sampled_from([0, 1, 54, 56, 91, 3600]),
        jump=st.sampled_from([0.0, -86_400.0, 86_400.0]),
        release=st.booleans(),
    )
    def time_passes(self, seconds: float, jump: float, release: bool) -> None:
        """The clocks go on, the one on the wall by leaps, and what was held back may arrive."""

        async def advance(stage: Stage) -> None:
            stage.clock.wall += jump
            stage.clock.advance(seconds)
            if release:
                for process in stage.processes.values():
                    process.faults.release()

        self.driver.do(advance)

    # --- what must hold ----------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def nobody_is_idle_with_something_to_read(self) -> None:
        async def check(stage: Stage) -> None:
            for slot, process in stage.processes.items():
                name = stage.name(slot)
                box = stage.box(name)
                if box is None or process.ended or process.in_step or process.faults.holding:
                    continue
                assert not box.wakes(), f"{name} idles, and {list(box.unread())} wait"

        self.driver.do(check)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        try:
            self.driver.do(_let_everything_arrive)
            self.driver.do(_check_delivery)
            self.driver.do(_check_order)
            self.driver.do(_check_folds)
        finally:
            self.driver.close()


async def _let_everything_arrive(stage: Stage) -> None:
    stage.boss_faults.clear()
    for process in stage.replaced:
        process.faults.clear()
    for slot, process in list(stage.processes.items()):
        process.faults.clear()
        process.crash()
        await stage.start(slot, begin=False, remembers=True, obedient=True)


def _accepted(stage: Stage) -> list[MessageAccepted]:
    return [event for event in stage.journal.events if isinstance(event, MessageAccepted)]


async def _check_delivery(stage: Stage) -> None:
    turn = (await stage.boss.next(turn=0, at="step", after=0)).turn
    reading = await stage.boss.next(turn=turn, at="begin", after=0)
    told = {cast("Any", re.search(r"msg-\w+", message.text))[0]: message.text for message in reading.messages}
    given = {message.id for record in stage.records.values() for message in record.given}
    for event in _accepted(stage):
        message_id = event.message.id
        assert (message_id in given) or (message_id in told), f"{event} was lost without notice"
        assert not (message_id in given and "was not delivered" in told.get(message_id, "")), f"{event}: told wrongly"
    assert given <= {event.message.id for event in _accepted(stage)}
    texts = [event.message.text for event in _accepted(stage)]
    assert len(texts) == len(set(texts)), "a retried call was accepted twice"


async def _check_order(stage: Stage) -> None:
    """What was in one list is first given in the order in which it was accepted."""
    for name, record in stage.records.items():
        first_given = list(dict.fromkeys(message.id for message in record.given))
        for queue in ("next_step", "next_turn"):
            accepted = [
                event.message.id for event in _accepted(stage) if (event.agent_id, event.queue) == (name, queue)
            ]
            given = [message_id for message_id in first_given if message_id in accepted]
            assert given == [message_id for message_id in accepted if message_id in given]


async def _check_folds(stage: Stage) -> None:
    """What the services hold is what a fold of the journal makes of it."""
    journal, mailboxes = MemoryJournal(), Mailboxes()
    journal.fold(mailboxes.apply)
    steering = Steering(AgentRegistry(stage.clock), mailboxes, clock=stage.clock, journal=journal)
    journal.append(*stage.journal.events)
    for agent in stage.services.registry.list("local"):
        assert astuple(mailboxes.of(agent)) == astuple(stage.services.mailboxes.of(agent))
    assert vars(steering)["_receipts"] == vars(stage.services.steering)["_receipts"]


@requirement("law:steering")
def test_every_accepted_message_is_delivered_or_its_sender_is_told() -> None:
    run_state_machine_as_test(
        OneLaw,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
