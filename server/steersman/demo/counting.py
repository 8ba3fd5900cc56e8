"""A subagent that counts to twelve on a scripted model, a number in each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import anyio

from steersman_client import Message, Step

GOAL: Final = 12


@dataclass(frozen=True)
class Line:
    """A line of a transcript, and where it comes from."""

    source: Literal["task", "message", "model"]
    text: str


def next_output(transcript: Sequence[Line]) -> tuple[str, bool]:
    """What the scripted model says next, and whether it wants a further step: by its transcript and nothing else."""
    instructions = [line.text for line in transcript if line.source == "message"]
    if instructions:
        return f'I was told: "{instructions[-1]}" I end here.', False
    number = 1 + sum(line.source == "model" for line in transcript)
    return str(number), number < GOAL


class CountingAgent:
    """The step function of such a subagent, and its transcript.

    Args:
        meets_at: the number in whose step it waits for somebody else; none if it never waits.
        stuck: that step never ends by itself, and the number is not said.
    """

    def __init__(self, *, meets_at: int | None = None, stuck: bool = False) -> None:
        self._meets_at = meets_at
        self._stuck = stuck
        self._transcript = [Line("task", f"Count to {GOAL}.")]
        self.read: list[Message] = []
        """What it was handed, in that order."""
        self.met = anyio.Event()
        """It waits now."""
        self.parted = anyio.Event()
        """Set by the other side: it need not wait any longer."""

    @property
    def said(self) -> list[str]:
        """What the model said, in the steps that were not cut short."""
        return [line.text for line in self._transcript if line.source == "model"]

    @property
    def counted(self) -> list[int]:
        """The numbers among it."""
        return [int(text) for text in self.said if text.isdecimal()]

    async def step(self, step: Step) -> bool:
        self.read += step.messages
        self._transcript += [Line("message", message.text) for message in step.messages]
        output, more = next_output(self._transcript)
        meets = output == str(self._meets_at)
        if meets and self._stuck:
            self.met.set()
            await anyio.sleep_forever()
        self._transcript.append(Line("model", output))
        if meets:
            self.met.set()
            await self.parted.wait()
        return more
