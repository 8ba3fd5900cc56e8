"""Without the last look: a turn closes whatever waits for it."""

from steersman.mailboxes import Mailbox
from steersman.registry import Activation
from steersman.turns import At, Reading, Turns

_take = Turns._take  # pyright: ignore[reportPrivateUsage]


def take(self: Turns, activation: Activation, turn: int, at: At, after: int) -> Reading:
    box: Mailbox = self._mailboxes.of(activation.agent)  # pyright: ignore[reportPrivateUsage]
    waiting = list(box.next_step)
    if at == "end":
        box.next_step.clear()
    reading = _take(self, activation, turn, at, after)
    if at == "end":
        box.next_step.extend(waiting)
    return reading


Turns._take = take  # pyright: ignore[reportPrivateUsage]
