"""Providers that a test plays: what they bring back is what the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.questions.requests import AskRequest, Card, HandleMaker
from steersman.questions.types import Answer, Via


class ScriptedProvider:
    """Brings back what `reply` makes of a card; anything at all, also what no provider should."""

    name: Via = "console"

    def __init__(self, reply: Callable[[Card], Any]) -> None:
        self._reply = reply
        self.cards: list[Card] = []

    def obstacle(self, request: AskRequest) -> str | None:
        return None

    async def ask(self, card: Card, handle: HandleMaker) -> Any:
        self.cards.append(card)
        return self._reply(card)

    def resume(self, card: Card, answer: object) -> Any:
        raise AssertionError("nothing is suspended here")


def choosing(label: str) -> ScriptedProvider:
    """A provider whose human selects one label for every question."""
    return ScriptedProvider(lambda card: [Answer(q.id, (label,)) for q in card.request.questions])
