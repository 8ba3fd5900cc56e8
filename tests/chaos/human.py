"""The human of a chaos run, at a terminal that is there again after every crash."""

from __future__ import annotations

import random
import select
import threading
import time
from pathlib import Path
from typing import Final

from steersman.settings import Source
from steersman.terminal.connection import Connection, NoServerError, RefusedError, connect
from tests.chaos.host import OPTIONS
from tests.chaos.records import Record

PAUSE: Final = 0.05
LONGEST_THOUGHT: Final = 0.4
ANSWERED_ELSEWHERE: Final = ("ELSEWHERE", "UNKNOWN")


class Human:
    """Answers whatever waits, in a thread of its own. Orphaned questions are answered too, one in two."""

    def __init__(self, state: Path, record: Path, dice: random.Random) -> None:
        self._state, self._dice = state, dice
        self._record = Record(record)
        self._over = threading.Event()
        self._ignored: set[tuple[str, bool]] = set()
        """A question whose server died may come back as the same card, and is then to be answered."""
        self.failure: Exception | None = None

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        """Until `stop`, or until something is refused that should not be: that is `failure` then."""
        try:
            while not self._over.is_set():
                try:
                    connection = connect(Source({"state-dir": str(self._state)}, {}), start=False)
                except NoServerError:
                    time.sleep(PAUSE)
                    continue
                try:
                    self._sit_at(connection)
                except NoServerError:
                    pass
                finally:
                    connection.close()
        except Exception as fault:  # noqa: BLE001 - the run tells of it
            self.failure = fault

    def _sit_at(self, connection: Connection) -> None:
        connection.attend()
        while not self._over.is_set():
            if select.select([connection], [], [], PAUSE)[0]:
                connection.listen()
            for card in connection.waiting:
                name = card["card_id"], card["orphaned"]
                if name in self._ignored:
                    continue
                if not (card["orphaned"] and self._dice.random() < 0.5):
                    time.sleep(self._dice.random() * LONGEST_THOUGHT)
                    self._answer(connection, card["card_id"], card["questions"][0]["question"])
                self._ignored.add(name)
                break

    def _answer(self, connection: Connection, card_id: str, question: str) -> None:
        label = self._dice.choice(OPTIONS)
        self._record.write("answering", card_id=card_id, question=question, label=label)
        given = [{"id": "q", "selected": [label]}]
        try:
            told = connection.request("answer", card_id=card_id, answers=given)["told"]
        except RefusedError as error:
            if error.code not in ANSWERED_ELSEWHERE:
                raise
            told = error.code
        self._record.write("told", card_id=card_id, label=label, told=told)
