"""The turns of agents: what their hosts read at each boundary, and what wakes them in between."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from steersman.agents import Outcome
from steersman.canonical import canonical, compact
from steersman.clock import Clock, wait_for
from steersman.errors import HostError, ToolError
from steersman.journal import (
    Journal,
    MessagesConfirmed,
    MessagesHandedOut,
    TurnClosed,
    TurnOpened,
)
from steersman.mailboxes import Mailbox, Mailboxes
from steersman.messages import Message
from steersman.plans import PlanMode
from steersman.registry import Activation, Agent, AgentRegistry

MAX_READING_BYTES: Final = 768 * 1024
"""How much JSON text is handed out at once; what does not fit is read at the next boundary. Clients of MCP refuse
replies over a megabyte, and a message that cannot arrive would be lost."""

ENVELOPE_BYTES: Final = 1024
"""What a message takes beside its text, at most: ids of 128 characters, source and time."""

At = Literal["begin", "idle", "step", "end"]


@dataclass(frozen=True)
class Reading:
    """Where an agent's turn stands, and what its host is to read now."""

    turn: int
    open: bool
    messages: Sequence[tuple[int, Message]]
    """With their sequence numbers, in the order to be read."""
    interrupted: bool
    plan_mode: bool


@dataclass(frozen=True)
class Watched:
    """What a host has to know of an agent between two boundaries."""

    version: int
    """Names this state: equal states have equal versions. Never 0."""
    interrupt_turn: int | None
    waiting: int
    resume: Sequence[str]
    """Stored subagents of the agent for which messages wait."""


class Turns:
    """Opens and closes turns, and hands messages out."""

    def __init__(
        self,
        registry: AgentRegistry,
        mailboxes: Mailboxes,
        plan_mode: PlanMode,
        *,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._registry = registry
        self._mailboxes = mailboxes
        self._plan_mode = plan_mode
        self._clock = clock
        self._journal = journal
        self._closing = False

    async def entered(self, activation: Activation) -> None:
        """Return once the entry of an agent is durable, and have its owner's host look."""
        agent = activation.agent
        self._mailboxes.ring(agent.realm, agent.header.parent_session)
        await self._journal.append()

    async def exit(self, activation: Activation, outcome: Outcome, final: str) -> Sequence[str]:
        """End an activation.

        Returns:
            The ids of the messages that can no longer be delivered; their senders are told.

        Raises:
            HostError: `CALLER_NOT_LIVE`.
        """
        self._check_live(activation)
        agent = activation.agent
        unread = [message.id for message in self._mailboxes.of(agent).unread() if message.kind != "notice"]
        self._registry.exit(activation, outcome, final)  # what can no longer be delivered is recorded there
        await self._journal.append()
        return unread if agent.finished else ()

    async def next(self, activation: Activation, *, turn: int, at: At, after: int, wait: float) -> Reading:
        """Take the next message or messages, at a boundary between two steps or two turns.

        Whatever does not fit what is known here (another turn, a step of a turn that is not open, a turn that is open
        already) changes nothing and returns where the turn stands: a lost reply is found out that way.

        Args:
            activation: whose turn it is.
            turn: the newest turn that the host knows of; 0 before the first.
            at: `idle` waits for something to do, which opens a turn; `begin` opens one at once; `step` is a boundary
                inside a turn; `end` closes the turn unless something is left to read in it.
            after: the highest sequence number that the host has.
            wait: seconds that `idle` waits at most.

        Raises:
            HostError: `CALLER_NOT_LIVE`, also if the activation ends while it waits.
            ToolError: `INVALID_ARGUMENTS` for a sequence number that was not handed out.
        """
        agent = activation.agent
        deadline = self._clock.now() + (wait if at == "idle" else 0)
        while True:
            changed = self._mailboxes.changed(agent)
            # Of an activation that was replaced: woken in that moment, it takes nothing from the new one.
            self._check_live(activation)
            reading = self._take(activation, turn, at, after)
            waits = at == "idle" and not reading.open and reading.turn == turn
            if not waits or self._closing or self._clock.now() >= deadline:
                break
            await wait_for(changed, self._clock, deadline)
        await self._journal.append()
        return reading

    async def watch(self, activation: Activation, *, seen: int, wait: float) -> Watched:
        """Wait until what a host has to know between two boundaries is not what it has seen.

        Args:
            activation: whose host it is.
            seen: the version it has seen; 0 before the first.
            wait: seconds to wait at most.

        Raises:
            HostError: `CALLER_NOT_LIVE`, also if the activation ends while it waits.
        """
        deadline = self._clock.now() + wait
        while True:
            changed = self._mailboxes.changed(activation.agent)
            self._check_live(activation)
            watched = self._watched(activation.agent)
            if watched.version != seen or self._closing or self._clock.now() >= deadline:
                return watched
            await wait_for(changed, self._clock, deadline)

    def release_all(self) -> None:
        """Have everybody who waits return at once, because the server is going away."""
        self._closing = True
        self._mailboxes.ring_all()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_live(self, activation: Activation) -> None:
        if not self._registry.is_live(activation):
            raise HostError("CALLER_NOT_LIVE")

    def _take(self, activation: Activation, turn: int, at: At, after: int) -> Reading:
        agent = activation.agent
        box = self._mailboxes.of(agent)
        if turn != box.turn:
            return self._standing(activation)
        if after > box.handed_out:
            reason = f"at after, found {after}; allowed are the numbers that were handed out, 0 to {box.handed_out}."
            raise ToolError("INVALID_ARGUMENTS", reason=reason)
        if after > box.confirmed:
            self._journal.append(MessagesConfirmed(agent.realm, agent.id, after))
        if box.open != (at in ("step", "end")) or (at == "idle" and not box.wakes()):
            return self._standing(activation)
        self._plan_mode.pass_boundary(agent)
        if at in ("begin", "idle"):
            return self._hand_out(activation, opens=box.turn + 1)
        if not box.interrupted and (at == "step" or box.unconfirmed or box.next_step):
            return self._hand_out(activation)
        reading = self._standing(activation)
        if at == "end":
            self._journal.append(TurnClosed(agent.realm, agent.id, turn))
        return Reading(turn, box.open, (), reading.interrupted, reading.plan_mode)

    def _standing(self, activation: Activation) -> Reading:
        box = self._mailboxes.of(activation.agent)
        return Reading(box.turn, box.open, (), box.interrupted, self._plan_mode.active(activation))

    def _hand_out(self, activation: Activation, opens: int | None = None) -> Reading:
        agent = activation.agent
        box = self._mailboxes.of(agent)
        fresh, count = _choose(box, opening=opens is not None)
        opened = () if opens is None else (TurnOpened(agent.realm, agent.id, opens),)
        handed = (MessagesHandedOut(agent.realm, agent.id, tuple(fresh)),) if fresh else ()
        self._journal.append(*opened, *handed)
        messages = tuple(box.unconfirmed)[:count]
        return Reading(box.turn, box.open, messages, box.interrupted, self._plan_mode.active(activation))

    def _watched(self, agent: Agent) -> Watched:
        box = self._mailboxes.of(agent)
        interrupt_turn = box.turn if box.open and box.interrupted else None
        waiting = sum(1 for _ in box.waiting())
        stored = [each for each in self._registry.stored_subagents(agent) if self._mailboxes.of(each).wakes()]
        resume = [subagent.id for subagent in stored]
        # A digest in place of a counter: it is a state, not a log, and it survives a restart. How many messages those
        # to resume ever got is in it, so that what has come since is not taken for what was seen.
        received = [self._mailboxes.of(subagent).received for subagent in stored]
        state = hashlib.sha256(canonical([interrupt_turn, waiting, resume, received]).encode()).digest()
        return Watched(1 + int.from_bytes(state[:6]), interrupt_turn, waiting, resume)


def _choose(box: Mailbox, *, opening: bool) -> tuple[list[str], int]:
    """What a host reads now: the ids of what was not handed out before, and how many messages in all.

    First what is unconfirmed, then all for the next step, then, at the beginning of a turn, one of those that open
    one; as much as fits, and one in any case.
    """
    turn = list(box.next_turn)[:1] if opening else []
    old = [message for _, message in box.unconfirmed]
    room = MAX_READING_BYTES
    chosen: list[Message] = []
    for message in [*old, *box.next_step, *turn]:
        room -= len(compact(message.text).encode()) + ENVELOPE_BYTES
        if chosen and room < 0:
            break
        chosen.append(message)
    return [message.id for message in chosen[len(old) :]], len(chosen)
