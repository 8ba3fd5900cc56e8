"""The fourth story: subagents at work, on a scripted model, and what a message does to them.

When a message comes is settled by events, so each run is the same. A server that does not move on fails the story.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio

from steersman.demo.counting import GOAL, CountingAgent
from steersman.demo.narration import Speaker
from steersman.demo.stage import DoesNotHoldError, Stage
from steersman_client import Agent, Turn, TurnLoop

PATIENCE_SECONDS = 10.0
"""How long a subagent may be at work. A small part of a second is enough."""
_ENDS: Final = "the subagent comes to the end of its work"


async def steer_a_subagent(stage: Stage, main: Agent) -> None:
    """Four subagents count to twelve; the main agent lets the first one, and steers each other one in its own way."""
    stage.narration.heading("4. A working subagent is steered")
    await _let_one_count(stage, main)
    await _steer_at_three(stage, main)
    await _stop_at_five(stage, main)
    await _steer_at_the_last_moment(stage, main)


async def _let_one_count(stage: Stage, main: Agent) -> None:
    work = _Work(stage, main, CountingAgent())
    await work.run("control", _ENDS)
    whole = [(turn.steps, turn.interrupted) for turn in work.turns] == [(GOAL, False)]
    complete = whole and work.counting.counted == list(range(1, GOAL + 1))
    stage.check(complete, "nobody steers it, and it counts all twelve", work.found)


async def _steer_at_three(stage: Stage, main: Agent) -> None:
    work = _Work(stage, main, CountingAgent(meets_at=3), "step", "Three is enough. Say why you stop.")
    await work.run("subagent", _ENDS)
    stage.check(work.counting.counted == [1, 2, 3], "one to three are kept, four to twelve never run", work.found)
    work.check_message()


async def _stop_at_five(stage: Stage, main: Agent) -> None:
    stopped = "the step in flight is stopped, and one to four are kept"
    work = _Work(stage, main, CountingAgent(meets_at=5, stuck=True), "turn", "Leave that step, it never ends.")
    await work.run("subagent", stopped)
    first, *later = work.turns
    stage.check(first.interrupted and work.counting.counted == [1, 2, 3, 4], stopped, work.found)
    stage.check([turn.steps for turn in later] == [1], "the message opens a turn of its own", work.found)
    work.check_message()


async def _steer_at_the_last_moment(stage: Stage, main: Agent) -> None:
    work = _Work(stage, main, CountingAgent(meets_at=GOAL), "step", "Before you go: was that all?")
    await work.run("subagent", _ENDS)
    extra = [turn.steps for turn in work.turns] == [GOAL + 1]
    stage.check(extra, "the turn does not close: the message is read in an extra step", work.found)
    work.check_message()


@dataclass
class _Work:
    """The work of one subagent, and the message that main sends it while it waits in one of its steps."""

    stage: Stage
    main: Agent
    counting: CountingAgent
    mode: Literal["step", "turn"] | None = None
    """None if main sends nothing."""
    text: str = ""
    turns: list[Turn] = field(default_factory=list[Turn])
    receipt: Mapping[str, Any] = field(default_factory=dict[str, Any])
    told: int = 0
    """How much of what the subagent said is narrated."""

    @property
    def found(self) -> object:
        return self.counting.said, self.turns

    async def run(self, who: Speaker, claim: str) -> None:
        """Enter the subagent and run its turns to the end.

        Raises:
            DoesNotHoldError: it does not come to an end, so the claim does not hold; or the message was not accepted.
        """
        async with self.stage.host.agent(label=who, owner=self.main, mode="one-shot") as subagent:
            self.stage.narration.say("host", f"enters the {who} as {subagent.id}, to count to {GOAL}")
            with self._in_time(claim):
                loop = TurnLoop(subagent, self.counting.step)
                async with anyio.create_task_group() as group:
                    if self.mode is not None:
                        group.start_soon(self._steer, subagent)
                    self.turns.append(await loop.turn())
                self.turns += await loop.drain()
        self._tell(who)

    async def _steer(self, subagent: Agent) -> None:
        await self.counting.met.wait()
        self._tell("subagent", " (and is in the middle of a step)")
        status = (await self.stage.status(subagent))["status"]
        self.stage.narration.say("main", f'sends it "{self.text}" by mode {self.mode}')
        arguments = {"subagent_id": subagent.id, "message": self.text, "mode": self.mode}
        self.receipt = (await self.stage.call("main", self.main, "steer_subagent", arguments)).structured
        found = (status, self.receipt.get("route"), self.receipt.get("queued_ahead"))
        claim = f"it is running, so the route is {self.mode}, and nothing is queued ahead"
        self.stage.check(found == ("running", self.mode, 0), claim, found)
        self.counting.parted.set()

    def _tell(self, who: Speaker, beside: str = "") -> None:
        news, self.told = self.counting.said[self.told :], len(self.counting.said)
        self.stage.narration.say(who, f"says: {', '.join(news) or 'nothing more'}{beside}")

    def check_message(self) -> None:
        """Check what became of the message."""
        sent = (self.receipt["message_id"], self.text, "agent", self.main.id)
        read = [(message.id, message.text, message.kind, message.agent_id) for message in self.counting.read]
        self.stage.check(read == [sent], "it has read that very message, once, as main's", read)
        self.stage.check(self.text in self.counting.said[-1], "it quotes the instruction", self.counting.said)

    @contextmanager
    def _in_time(self, claim: str) -> Generator[None]:
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                yield
        except TimeoutError:
            waited = f"after {PATIENCE_SECONDS:g} seconds it was not so, and it had said {self.counting.said}"
            raise DoesNotHoldError(f"{claim}. Found: {waited}.") from None
