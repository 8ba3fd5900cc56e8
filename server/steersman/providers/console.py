"""The human at a page or a terminal of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import anyio

from steersman.questions.requests import AskRequest, Card, HandleMaker, Reply, Suspended
from steersman.questions.types import Via


class ConsoleProvider:
    """Leaves cards before a human who has a page or a terminal of ours open. The answer comes to the service."""

    name: Via = "console"

    def __init__(self) -> None:
        self._attending: Counter[str] = Counter()

    @contextmanager
    def attend(self, realm: str) -> Generator[None]:
        """Say that a page or a terminal of that realm's human is open."""
        self._attending[realm] += 1
        try:
            yield
        finally:
            self._attending[realm] -= 1

    def obstacle(self, request: AskRequest) -> str | None:
        if request.agent is not None and self._attending[request.agent.realm] > 0:
            return None
        return "no terminal in which the human runs `steersman answer` is open"

    async def ask(self, card: Card, handle: HandleMaker) -> Reply | Suspended:
        await anyio.sleep_forever()
        raise AssertionError

    def resume(self, card: Card, answer: object) -> NoReturn:
        raise AssertionError
