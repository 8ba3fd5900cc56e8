"""Turns of an agent, run so that every message reaches it, once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.shared.exceptions import MCPError

from steersman_client.agent import Agent, At, Message, Reading, Watched
from steersman_client.errors import HostMethodError, not_live

IDLE_SECONDS: Final = 55.0
"""How long one wait for work lasts before the next one begins."""


@dataclass(frozen=True)
class Step:
    """One model request is due, with the tool calls that come of it."""

    turn: int
    number: int
    """Its place in the turn; the first is 1."""
    messages: Sequence[Message]
    """What to put into the transcript before the request, in this order. Empty most of the time."""
    plan_mode: bool


@dataclass(frozen=True)
class Turn:
    """A turn that has closed."""

    number: int
    steps: int
    interrupted: bool
    """Whether it was stopped: the step in flight was cancelled, or no further one was begun."""


StepFunction = Callable[[Step], Awaitable[bool]]
"""Runs one step, and returns whether the turn needs another one: the model has called tools."""


class TurnLoop:
    """Runs the turns of one agent on any model client.

    The step function is called once for each step. It takes `step.messages` into its transcript **before its first
    await**, since an interrupt may cancel it at any await; each message is given to it once and never again, also when
    a reply was lost and when the agent had to be entered again. An exception that it raises ends the loop and comes out
    of it as it is; what still waits for the agent is then kept for a later loop, or its senders are told.

    While a turn runs the agent is watched: its lease is kept, and an interrupt cancels the step in flight.

    Args:
        agent: whose turns these are.
        step: the step function.
        after: the highest `seq` that is in the transcript already, if that was kept from an earlier run.
        resume: told the id of a stored subagent of the agent for which messages wait, while a turn runs or is waited
            for. It returns at once; the host enters that subagent and runs it, in a task of its own.

    Example:
        ```python
        from typing import Any

        from mcp.server.lowlevel import Server
        from steersman_client import Step, TurnLoop, connect


        async def main(server: Server[Any]) -> None:
            transcript = ["count to three"]

            async def count(step: Step) -> bool:
                transcript.extend(message.text for message in step.messages)
                transcript.append(str(step.number))
                return step.number < 3

            async with connect(server) as host, host.agent() as agent:
                turn = await TurnLoop(agent, count).turn()
            assert (turn.steps, turn.interrupted) == (3, False)
            assert transcript == ["count to three", "1", "2", "3"]
        ```
    """

    def __init__(
        self,
        agent: Agent,
        step: StepFunction,
        *,
        after: int = 0,
        resume: Callable[[str], None] | None = None,
    ) -> None:
        self._agent = agent
        self._function = step
        self._after = after
        self._resume = resume
        self._resuming: dict[str, int] = {}
        """Whom the host was told to resume, and how often it had entered each by then."""
        self._turn = 0
        self._in_flight: tuple[int, anyio.CancelScope] | None = None
        self._interrupted: int | None = None
        self._lost = False
        self._running = False

    @property
    def after(self) -> int:
        """The highest `seq` that was given to the step function: keep it with the transcript."""
        return self._after

    async def turn(self) -> Turn:
        """Run a turn that the host begins itself, because its human has spoken or it was just started.

        Raises:
            HostMethodError: `CALLER_NOT_LIVE`, if the agent was ended or somebody else has entered it.
            MCPError: the connection is lost.
        """
        async with self._alone(), self._agent.attended(self._heed):
            return await self._run(await self._open("begin"))

    async def drain(self) -> Sequence[Turn]:
        """Run turns as long as there is something that opens one, and return once there is not.

        After `turn` this is what a one-shot subagent does before it exits. Raises as `turn`.
        """
        turns: list[Turn] = []
        async with self._alone(), self._agent.attended(self._heed):
            while (reading := await self._open("idle", wait=0)).open:
                turns.append(await self._run(reading))
        return turns

    async def run(self) -> None:
        """Wait for work and run turns, until it is cancelled. Raises as `turn`."""
        async with self._alone(), self._agent.attended(self._heed):
            while True:
                reading = await self._open("idle", wait=IDLE_SECONDS)
                if reading.open:
                    await self._run(reading)

    # --- one turn ----------------------------------------------------------------------------------------------------

    async def _open(self, at: At, *, wait: float = 0) -> Reading:
        """Open a turn, or find one open that a lost reply or an earlier loop has left. `idle` may find none."""
        while True:
            asked = self._turn
            reading = await self._next(at, wait=wait)
            if reading.open and not reading.messages:
                # What it opened with may have been in a reply that was lost.
                reading = await self._next("step")
            if reading.open or (at == "idle" and reading.turn == asked):
                return reading

    async def _run(self, reading: Reading) -> Turn:
        try:
            return await self._run_steps(reading)
        except Exception:
            # A turn that was to stop closes with that. Any other stays open for a loop that goes on in it.
            if self._interrupted == self._turn:
                with suppress(HostMethodError, MCPError):
                    await self._next("end")
            raise

    async def _run_steps(self, reading: Reading) -> Turn:
        steps = 0
        while True:
            number = reading.turn
            more = False
            if not self._is_interrupted(reading):
                steps += 1
                more = await self._step(reading, steps)
            if self._is_interrupted(reading):
                await self._next("end")
                return Turn(number, steps, interrupted=True)
            reading = await self._next("step" if more else "end")
            if reading.open:
                continue
            if not more:
                return Turn(number, steps, reading.interrupted)
            # The agent was entered again in the middle of its work, which goes on in a new turn.
            reading = await self._open("begin")

    async def _step(self, reading: Reading, number: int) -> bool:
        messages = [message for message in reading.messages if message.seq > self._after]
        more = False
        with anyio.CancelScope() as scope:
            self._in_flight = (reading.turn, scope)
            try:
                self._after = max([self._after, *(message.seq for message in messages)])
                more = bool(await self._function(Step(reading.turn, number, messages, reading.plan_mode)))
            finally:
                self._in_flight = None
        self._check_lost()
        return more

    def _is_interrupted(self, reading: Reading) -> bool:
        return reading.interrupted or self._interrupted == reading.turn

    # --- the server's side -------------------------------------------------------------------------------------------

    async def _next(self, at: At, *, wait: float = 0) -> Reading:
        while True:
            self._check_lost()
            credential = self._agent.credential
            try:
                reading = await self._agent.next(turn=self._turn, at=at, after=self._after, wait=wait)
            except HostMethodError as error:
                if error.code != "CALLER_NOT_LIVE":
                    raise
                await self._agent.renew(credential)
            else:
                self._turn = reading.turn
                return reading

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        if self._running:
            raise RuntimeError("this loop runs already; an agent has one turn at a time")
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def _heed(self, watched: Watched | None) -> None:
        if watched is None:
            self._lost = True
            if self._in_flight is not None:
                self._in_flight[1].cancel()
            return
        self._interrupted = watched.interrupt_turn
        if self._in_flight is not None and self._in_flight[0] == watched.interrupt_turn:
            self._in_flight[1].cancel()
        entries = {agent_id: self._agent.host.entries[agent_id] for agent_id in watched.resume}
        told, self._resuming = self._resuming, entries
        for agent_id, count in entries.items():
            if self._resume is not None and told.get(agent_id) != count:
                self._resume(agent_id)

    def _check_lost(self) -> None:
        if self._lost:
            raise not_live()
