"""What waits for each agent, and where its turn stands: a fold of the journal, and nothing else.

A **mailbox** has two ordered lists of waiting messages. A message leaves them when it is handed out, and gets its
sequence number then; it stays **unconfirmed** until its host has named that number, and is handed out again until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio

from steersman.journal import (
    AgentEnded,
    AgentEntered,
    AgentExited,
    Event,
    MailboxRestored,
    MessageAccepted,
    MessageMissed,
    MessagesConfirmed,
    MessagesHandedOut,
    NoticeLeft,
    Restored,
    TurnClosed,
    TurnInterrupted,
    TurnOpened,
)
from steersman.messages import Message
from steersman.registry import Agent


@dataclass(eq=False)
class Mailbox:
    """The messages and the turn of one agent. Only `Mailboxes.apply` changes it."""

    next_step: deque[Message] = field(default_factory=deque[Message])
    """Read before the next model request."""
    next_turn: deque[Message] = field(default_factory=deque[Message])
    """Each opens a turn."""
    unconfirmed: deque[tuple[int, Message]] = field(default_factory=deque[tuple[int, Message]])
    handed_out: int = 0
    """The newest sequence number; the first message gets 1."""
    confirmed: int = 0
    """The highest sequence number that a host ever named."""
    turn: int = 0
    """The number of the newest turn; the first one is 1."""
    open: bool = False
    """Whether that turn runs."""
    interrupted: bool = False
    """Whether it is to stop."""
    worked: bool = False
    """Whether a turn was opened since the agent entered."""
    received: int = 0
    """How many messages and notices ever came."""
    characters: int = 0
    """How much text it holds, handed out and unconfirmed included."""

    def waiting(self) -> Iterator[Message]:
        """What was never handed out, in the order of the lists."""
        yield from self.next_step
        yield from self.next_turn

    def put(self, queue: deque[Message], message: Message) -> None:
        queue.append(message)
        self.received += 1
        self.characters += len(message.text)

    def unread(self) -> Iterator[Message]:
        """Everything that the host does not surely have, in the order in which it is handed out."""
        for _, message in self.unconfirmed:
            yield message
        yield from self.waiting()

    def wakes(self) -> bool:
        """Whether something in it opens a turn: a notice alone does not."""
        return any(message.kind != "notice" for message in self.unread())


class Mailboxes:
    """The mailboxes of all agents of this process."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[str, str], Mailbox] = {}
        self._changed: dict[tuple[str, str], anyio.Event] = {}

    def of(self, agent: Agent) -> Mailbox:
        return self._box(agent.realm, agent.id)

    def changed(self, agent: Agent) -> anyio.Event:
        """What is set when something about this agent changes next."""
        return self._changed.setdefault((agent.realm, agent.id), anyio.Event())

    def ring(self, realm: str, agent_id: str) -> None:
        """Wake whoever waits for a change of this agent."""
        changed = self._changed.pop((realm, agent_id), None)
        if changed is not None:
            changed.set()

    def ring_all(self) -> None:
        for realm, agent_id in list(self._changed):
            self.ring(realm, agent_id)

    def apply(self, event: Event | Restored) -> None:
        """Take one event of the journal in."""
        match event:
            case MailboxRestored():
                self._boxes[event.realm, event.agent_id] = _restored(event)
            case AgentEntered() | AgentExited() | AgentEnded():
                box = self._box(event.realm, event.agent_id)
                box.open = box.interrupted = box.worked = False
            case TurnOpened():
                box = self._box(event.realm, event.agent_id)
                box.turn, box.open, box.interrupted, box.worked = event.turn, True, False, True
            case TurnInterrupted():
                self._box(event.realm, event.agent_id).interrupted = True
            case TurnClosed():
                box = self._box(event.realm, event.agent_id)
                box.open = box.interrupted = False
            case MessageAccepted(queue="next_step") | NoticeLeft():
                box = self._box(event.realm, event.agent_id)
                box.put(box.next_step, event.message)
            case MessageAccepted():
                box = self._box(event.realm, event.agent_id)
                box.put(box.next_turn, event.message)
            case MessagesHandedOut():
                self._hand_out(self._box(event.realm, event.agent_id), event.message_ids)
            case MessagesConfirmed():
                self._confirm(self._box(event.realm, event.agent_id), event.seq)
            case MessageMissed():
                self._drop(self._box(event.realm, event.agent_id), event.message_id)
            case _:
                return
        self.ring(event.realm, event.agent_id)

    def _box(self, realm: str, agent_id: str) -> Mailbox:
        return self._boxes.setdefault((realm, agent_id), Mailbox())

    def _hand_out(self, box: Mailbox, message_ids: tuple[str, ...]) -> None:
        for message_id in message_ids:
            # Each is the first of its list: nothing overtakes.
            queue = next(queue for queue in (box.next_step, box.next_turn) if queue and queue[0].id == message_id)
            box.handed_out += 1
            box.unconfirmed.append((box.handed_out, queue.popleft()))

    def _confirm(self, box: Mailbox, seq: int) -> None:
        box.confirmed = seq
        while box.unconfirmed and box.unconfirmed[0][0] <= seq:
            box.characters -= len(box.unconfirmed.popleft()[1].text)

    def _drop(self, box: Mailbox, message_id: str) -> None:
        dropped = next(message for message in box.unread() if message.id == message_id)
        box.characters -= len(dropped.text)
        box.unconfirmed = deque(entry for entry in box.unconfirmed if entry[1] is not dropped)
        box.next_step = deque(message for message in box.next_step if message is not dropped)
        box.next_turn = deque(message for message in box.next_turn if message is not dropped)


def _restored(event: MailboxRestored) -> Mailbox:
    box = Mailbox(
        deque(event.next_step),
        deque(event.next_turn),
        deque(event.unconfirmed),
        handed_out=event.handed_out,
        confirmed=event.confirmed,
        turn=event.turn,
        open=event.open,
        interrupted=event.interrupted,
        worked=event.worked,
        received=event.received,
    )
    box.characters = sum(len(message.text) for message in box.unread())
    return box
