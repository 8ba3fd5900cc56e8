"""Steering: new instructions into agents that are working, and what becomes of them.

An accepted message is delivered, or its sender is told that it was not. Whether a message is accepted, by which route,
and whether a turn closes are decided in one piece each, without a pause in which the other could happen.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from typing import Final, Literal, assert_never

from steersman.clock import Clock
from steersman.contract.files import load
from steersman.errors import SubagentError, SubagentLine, ToolError
from steersman.journal import (
    Event,
    Journal,
    MessageAccepted,
    MessageMissed,
    NoticeLeft,
    ReceiptRestored,
    Restored,
    TurnInterrupted,
)
from steersman.mailboxes import Mailbox, Mailboxes
from steersman.messages import CallId, Kind, Message, Queue, Receipt, Route, SteerMode
from steersman.registry import PROFILE_NAMESPACES, Activation, Agent, AgentRegistry

MAX_WAITING: Final = 4096
"""How many messages one mailbox holds."""
MAX_WAITING_CHARACTERS: Final = 32 * 1024 * 1024
MAX_LISTED: Final = 256
"""How many of its subagents a caller is told: those that may still be steered first, then the newest."""
KEPT_RECEIPTS: Final = 1024
"""How many calls of one sender are known again when they are retried, the newest."""

Status = Literal["live", "running", "idle", "stored", "finished"]
"""`live` is an agent whose host has told of no turn since it entered."""


def choose_route(mode: SteerMode, status: Literal["live", "running", "idle", "stored"]) -> tuple[Route, Queue]:
    """The way a message takes, and the list it waits in."""
    match status, mode:
        case "running", "step":
            return "step", "next_step"
        case "running", "turn":
            return "turn", "next_turn"
        case (("live" | "idle"), _):
            return "wakeup", "next_turn"
        case "stored", _:
            return "cold-resume", "next_turn"
        case _:
            assert_never(status)


class Steering:
    """Takes messages for agents in, and stops turns."""

    def __init__(self, registry: AgentRegistry, mailboxes: Mailboxes, *, clock: Clock, journal: Journal) -> None:
        self._registry = registry
        self._mailboxes = mailboxes
        self._clock = clock
        self._journal = journal
        self._receipts: defaultdict[tuple[str, str], OrderedDict[str, tuple[str, Receipt]]] = defaultdict(OrderedDict)
        journal.fold(self._apply)
        registry.on_end(self._agent_ended)

    def status(self, agent: Agent) -> Status:
        lives = self._registry.status(agent)
        if lives != "live":
            return lives
        box = self._mailboxes.of(agent)
        return "running" if box.open else "idle" if box.worked else "live"

    async def steer(
        self,
        caller: Activation,
        subagent_id: str,
        text: str,
        mode: SteerMode,
        *,
        call: CallId | None = None,
        kind: Kind = "agent",
    ) -> Receipt:
        """Put a message into the mailbox of a direct subagent of the caller.

        Args:
            caller: whose subagent it is; it sends the message, or its host does in its name.
            subagent_id: with or without the namespace of a host profile.
            text: the instruction.
            mode: `turn` stops the turn that runs.
            call: tells a retry from a second message; the retry gets the first one's receipt.
            kind: who speaks.

        Raises:
            SubagentError: `CALLER_NOT_LIVE`, `UNKNOWN_SUBAGENT`, `SUBAGENT_FINISHED`, `SUBAGENT_CLOSING`.
            ToolError: `INVALID_ARGUMENTS` for a call id that belongs to other arguments; `LIMIT_EXCEEDED` for a mailbox
                that is full.
        """
        target = self._find_direct(caller, subagent_id)
        known = self._find_receipt(caller, call)
        if known is not None:
            await self._journal.append()
            return known
        receipt = self._accept(caller.id, target, text, mode, call, kind)
        if receipt.route == "cold-resume":
            self._mailboxes.ring(caller.realm, caller.id)
        await self._journal.append()
        return receipt

    def tell(self, agent: Agent, text: str, mode: SteerMode, kind: Kind) -> Receipt:
        """Put a message into the mailbox of any agent, in nobody's name; durable once the journal says so.

        Raises:
            SubagentError: `UNKNOWN_SUBAGENT` for an agent that reads no messages, `SUBAGENT_FINISHED`,
                `SUBAGENT_CLOSING`.
            ToolError: `LIMIT_EXCEEDED` for a mailbox that is full.
        """
        if not reads_messages(agent):
            raise SubagentError("UNKNOWN_SUBAGENT", subagents=())
        receipt = self._accept(None, agent, text, mode, None, kind)
        if receipt.route == "cold-resume":
            self._mailboxes.ring(agent.realm, agent.header.parent_session)
        return receipt

    def stop(self, agent: Agent) -> int | None:
        """Stop the turn that an agent is in. Returns its number; none if no turn runs."""
        if self.status(agent) != "running":
            return None
        self._journal.append(*self._stop(agent))
        return self._mailboxes.of(agent).turn

    async def interrupt(self, caller: Activation, agent_id: str) -> int | None:
        """Stop the turn that a direct or deeper subagent of the caller is in. Its mailbox is kept.

        Returns:
            The number of that turn; none if no turn runs.

        Raises:
            SubagentError: `CALLER_NOT_LIVE`, or `UNKNOWN_SUBAGENT` for an agent that is not below the caller.
        """
        target = self._find_below(caller, agent_id)
        turn = self.stop(target)
        await self._journal.append()
        return turn

    # --- who may be reached ------------------------------------------------------------------------------------------

    def _find_direct(self, caller: Activation, agent_id: str) -> Agent:
        self._check_live(caller)
        for name in (agent_id, *(namespace + agent_id for namespace in PROFILE_NAMESPACES)):
            agent = caller.agent.subagents.get(name)
            if agent is not None and reads_messages(agent) and self._registry.is_direct_subagent(agent, caller.id):
                return agent
        raise self._unknown(caller)

    def _find_below(self, caller: Activation, agent_id: str) -> Agent:
        self._check_live(caller)
        agent = at = self._registry.get(caller.realm, agent_id)
        seen: set[str] = set()
        while agent is not None and at is not None and at.id not in seen:
            seen.add(at.id)
            owner_id = at.header.parent_session
            if not self._registry.is_direct_subagent(at, owner_id):
                break
            if owner_id == caller.id:
                return agent
            at = self._registry.get(caller.realm, owner_id)
        raise self._unknown(caller)

    def _check_live(self, caller: Activation) -> None:
        if not self._registry.is_live(caller):
            raise SubagentError("CALLER_NOT_LIVE")

    def _unknown(self, caller: Activation) -> SubagentError:
        direct = [
            agent for agent in caller.agent.subagents.values() if self._registry.is_direct_subagent(agent, caller.id)
        ]
        if len(direct) > MAX_LISTED:
            newest = sorted(enumerate(direct), key=lambda entry: (not entry[1].finished, entry[0]))[-MAX_LISTED:]
            direct = [agent for _, agent in sorted(newest, key=lambda entry: entry[0])]
        lines = [SubagentLine(agent.id, agent.label, self.status(agent)) for agent in direct]
        return SubagentError("UNKNOWN_SUBAGENT", subagents=lines)

    # --- one message -------------------------------------------------------------------------------------------------

    def _find_receipt(self, caller: Activation, call: CallId | None) -> Receipt | None:
        receipts = self._receipts.get((caller.realm, caller.id))
        if call is None or receipts is None or call.key not in receipts:
            return None
        digest, receipt = receipts[call.key]
        if digest != call.digest:
            reason = "the call's id was used before with other arguments; allowed is a retry of the same call."
            raise ToolError("INVALID_ARGUMENTS", reason=reason)
        return receipt

    def _accept(
        self, sender_id: str | None, target: Agent, text: str, mode: SteerMode, call: CallId | None, kind: Kind
    ) -> Receipt:
        box = self._mailboxes.of(target)
        status = self.status(target)
        if status == "finished":
            raise SubagentError("SUBAGENT_FINISHED")
        if _is_closing(target, box, status):
            raise SubagentError("SUBAGENT_CLOSING")
        _check_room(box, text)
        route, queue = choose_route(mode, status)
        ahead = len(box.unconfirmed) + len(box.next_step) + (len(box.next_turn) if queue == "next_turn" else 0)
        message = self._message(text, kind, sender_id)
        receipt = Receipt(route, message.id, ahead)
        accepted = MessageAccepted(target.realm, target.id, message, queue, receipt, call)
        self._journal.append(accepted, *(self._stop(target) if route == "turn" else ()))
        return receipt

    def _stop(self, agent: Agent) -> Iterable[TurnInterrupted]:
        box = self._mailboxes.of(agent)
        return () if box.interrupted else (TurnInterrupted(agent.realm, agent.id, box.turn),)

    def _message(self, text: str, kind: Kind, agent_id: str | None) -> Message:
        return Message(f"msg-{secrets.token_hex(8)}", text, kind, agent_id, self._clock.wall_time())

    # --- what cannot be delivered any more ---------------------------------------------------------------------------

    def _agent_ended(self, activation: Activation) -> None:
        agent = activation.agent
        if agent.finished:
            self._miss_all(agent)
        self._mailboxes.ring(agent.realm, agent.id)
        # Its owner's host may have to resume it.
        self._mailboxes.ring(agent.realm, agent.header.parent_session)

    def _miss_all(self, agent: Agent) -> None:
        box = self._mailboxes.of(agent)
        texts = load("host")["notices"]
        facts: list[Event] = []
        handed_out = {message.id for _, message in box.unconfirmed}
        for message in box.unread():
            facts.append(MessageMissed(agent.realm, agent.id, message.id))
            sender = self._registry.get(agent.realm, message.agent_id) if message.agent_id is not None else None
            if message.kind != "notice" and sender is not None and not sender.finished:
                template: str = texts["unconfirmed" if message.id in handed_out else "missed"]
                said = template.format(message_id=message.id, agent_id=agent.id)
                facts.append(NoticeLeft(sender.realm, sender.id, self._message(said, "notice", agent.id)))
        self._journal.append(*facts)

    def _apply(self, event: Event | Restored) -> None:
        match event:
            case MessageAccepted(message=Message(agent_id=str() as sender_id), call=CallId() as call):
                self._keep_receipt(event.realm, sender_id, call, event.receipt)
            case ReceiptRestored():
                self._keep_receipt(event.realm, event.agent_id, event.call, event.receipt)
            case _:
                pass

    def _keep_receipt(self, realm: str, sender_id: str, call: CallId, receipt: Receipt) -> None:
        receipts = self._receipts[realm, sender_id]
        receipts[call.key] = (call.digest, receipt)
        while len(receipts) > KEPT_RECEIPTS:
            receipts.popitem(last=False)


def reads_messages(agent: Agent) -> bool:
    """Whether a host reads for it. What no host entered by name, none can read for: nothing is accepted that cannot
    arrive."""
    return agent.key_hash is not None


def _is_closing(agent: Agent, box: Mailbox, status: Status) -> bool:
    """Whether a one-shot agent has done its work: its turn has closed and nothing was left, so that its host ends it.

    Until it opens a turn again nothing more is accepted; before its first turn everything is.
    """
    return agent.mode == "one-shot" and status == "idle" and not box.wakes()


def _check_room(box: Mailbox, text: str) -> None:
    waiting = len(box.unconfirmed) + len(box.next_step) + len(box.next_turn)
    if waiting >= MAX_WAITING:
        # Notices are of the reader's own making, and leave room for what others send.
        waiting = sum(1 for message in box.unread() if message.kind != "notice")
    if waiting >= MAX_WAITING or box.characters + len(text) > MAX_WAITING_CHARACTERS:
        found = f"{waiting:,} messages of {box.characters:,} characters wait for the subagent"
        allowed = f"{MAX_WAITING:,} messages of {MAX_WAITING_CHARACTERS:,} characters"
        raise ToolError("LIMIT_EXCEEDED", reason=f"{found}; allowed are {allowed}.")
