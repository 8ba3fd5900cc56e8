"""`steersman answer` in a terminal: one card after the other, as they come."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from steersman.plans import APPROVE, KEEP_PLANNING
from steersman.terminal.connection import Connection, NoServerError, RefusedError
from steersman.terminal.screen import Screen

HINT: Final = "/skip, /later, /decline [reason], /dismiss"

Given = dict[str, Any]
"""One answer, as the server reads it."""


class _LeaveError(Exception):
    """The human is going."""


class _LaterError(Exception):
    """The card is put off."""


class _GoneError(Exception):
    """The card was answered elsewhere while it was before the human."""


@dataclass
class _RefusalError(Exception):
    """The human answers none of it."""

    how: str
    reason: str | None = None


class Keyboard:
    """Lines of standard input, waited for together with what the server says."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._typed: deque[str] = deque()

    def forget(self) -> None:
        """Drop what was typed before the question was there."""
        if os.isatty(self._descriptor):
            import termios

            with suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
            self._typed.clear()
            self._rest = b""

    def line(self, connection: Connection, changed: Callable[[], None]) -> str:
        """The next line; `changed` is called whenever the server has said what waits now.

        Raises:
            _LeaveError: there are no more lines.
            NoServerError: the server is gone.
        """
        while not self._typed:
            ready, _, _ = select.select([self._descriptor, connection], [], [])
            if connection in ready:
                connection.listen()
                changed()
            if self._descriptor in ready:
                data = os.read(self._descriptor, 65_536)
                if not data:
                    raise _LeaveError
                *lines, self._rest = (self._rest + data).split(b"\n")
                self._typed.extend(line.decode(errors="replace").rstrip("\r") for line in lines)
        return self._typed.popleft()


class Answering:
    """The human at work.

    Args:
        connect: joins a server, again if that one ends.
        screen: shows everything.
        keyboard: has the human's words.
    """

    def __init__(self, connect: Callable[[], Connection], screen: Screen, keyboard: Keyboard) -> None:
        self._connect = connect
        self._screen = screen
        self._keyboard = keyboard
        self._later: set[str] = set()
        self._done = 0

    def run(self) -> int:
        """Answer what waits, and what comes, until the human leaves. Returns the exit code."""
        with suppress(_LeaveError):
            while True:
                connection = self._connect()
                try:
                    connection.attend()
                    self._attend(connection)
                except NoServerError as error:
                    self._screen.say(f"{error} Joining the next one.", "yellow")
                finally:
                    connection.close()
        self._screen.say()
        return 0

    def _attend(self, connection: Connection) -> None:
        told = False
        while True:
            waiting = [card for card in connection.waiting if card["card_id"] not in self._later]
            if waiting:
                told = False
                self._answer(connection, waiting[0], len(waiting))
                continue
            if not told:
                put_off = [card for card in connection.waiting if card["card_id"] in self._later]
                also = f" {len(put_off)} put off: Enter shows them again." if put_off else ""
                self._screen.say(f"Nothing waits. What comes is shown here; Ctrl-D leaves.{also}", "dim")
                told = True
            try:
                self._keyboard.line(connection, lambda: self._look(connection))
            except _LookError:
                continue
            self._later.clear()
            told = False

    def _look(self, connection: Connection) -> None:
        if any(card["card_id"] not in self._later for card in connection.waiting):
            raise _LookError

    def _answer(self, connection: Connection, card: Mapping[str, Any], count: int) -> None:
        self._screen.card(card, 1, count, datetime.now(UTC))
        self._keyboard.forget()
        prompt = _Prompt(connection, card, self._screen, self._keyboard)
        try:
            self._send(connection, card, prompt)
        except _LaterError:
            self._later.add(card["card_id"])
        except _GoneError:
            # What is being typed right now must not answer another card.
            self._screen.say("\nAnswered elsewhere. Enter goes on.", "yellow")
            self._keyboard.line(connection, lambda: None)
        except RefusedError as error:
            self._screen.say(str(error), "bold red")
            if error.code != "INVALID":
                self._later.add(card["card_id"])

    def _send(self, connection: Connection, card: Mapping[str, Any], prompt: _Prompt) -> None:
        try:
            answers = prompt.review() if "plan" in card else prompt.answers()
            told = connection.request("answer", card_id=card["card_id"], answers=answers)["told"]
        except _RefusalError as refusal:
            params = {} if refusal.reason is None else {"reason": refusal.reason}
            told = connection.request("refuse", card_id=card["card_id"], how=refusal.how, **params)["told"]
        self._screen.say(TOLD[told], "green")
        # The card is gone from what waits, though the server may not have said so yet.
        self._later.add(card["card_id"])


TOLD: Final[Mapping[str, str]] = {
    "answered": "Answered.",
    "late": "Nobody waits for it any more: the agent reads the answer as a message.",
    "dismissed": "Dismissed. Nobody waited for it any more.",
}


class _LookError(Exception):
    """There is something to answer."""


class _Prompt:
    """Takes the answers to one card."""

    def __init__(self, connection: Connection, card: Mapping[str, Any], screen: Screen, keyboard: Keyboard) -> None:
        self._connection = connection
        self._card = card
        self._screen = screen
        self._keyboard = keyboard
        self._withdrawn = bool(card["orphaned"])
        self._question = ""

    def answers(self) -> list[Given]:
        questions: Sequence[Mapping[str, Any]] = self._card["questions"]
        found: list[Given] = []
        for number, question in enumerate(questions, start=1):
            self._screen.question(question, number, len(questions))
            options = [option["label"] for option in question["options"]]
            given = self._choice(options, many=question["multi_select"]) if options else self._free_text()
            found.append({"id": question["id"], **given})
        return found

    def review(self) -> list[Given]:
        [question] = self._card["questions"]
        self._screen.question(question, 1, 1)
        while True:
            line = self._ask("1 or 2")
            if line == "1":
                return [{"id": question["id"], "selected": [APPROVE]}]
            if line == "2":
                words = self._ask("what should change, or just Enter", empty=True)
                given: Given = {"custom": words} if words.strip() else {"selected": [KEEP_PLANNING]}
                return [{"id": question["id"], **given}]
            self._screen.say("Type 1 or 2.", "red")

    def _choice(self, options: Sequence[str], *, many: bool) -> Given:
        other = len(options) + 1
        self._screen.say(f"  {other}) Other: your own words")
        hint = f"numbers from 1 to {other}, with commas between" if many else f"a number from 1 to {other}"
        while True:
            line = self._ask(hint, skip=True)
            if line is None:
                return {"skipped": True}
            words = line.replace(",", " ").split()
            numbers = [int(word) if word.isascii() and word.isdigit() and len(word) < 4 else 0 for word in words]
            if not numbers or not all(1 <= number <= other for number in numbers):
                self._screen.say(f"Type {hint}; {other} is for your own words.", "red")
            elif len(set(numbers)) != len(numbers) or (len(numbers) > 1 and not many):
                self._screen.say("Name each choice once." if many else "Choose one.", "red")
            else:
                given: Given = {"selected": [options[number - 1] for number in numbers if number != other]}
                return {**given, "custom": self._ask("your own words")} if other in numbers else given

    def _free_text(self) -> Given:
        words = self._ask("your words", skip=True)
        return {"skipped": True} if words is None else {"custom": words}

    def _ask(self, hint: str, *, skip: bool = False, empty: bool = False) -> Any:
        """A line; none for a question that is skipped. A line that begins with // is one that begins with /."""
        commands = HINT if skip else HINT.removeprefix("/skip, ")
        while True:
            self._question = f"({hint}; {commands}) > "
            self._screen.say(self._question, "yellow", end="")
            sys.stdout.flush()
            line = self._keyboard.line(self._connection, self._look)
            command, _, rest = line.strip().partition(" ")
            match command:
                case "/skip" if skip:
                    return None
                case "/later":
                    raise _LaterError
                case "/decline":
                    raise _RefusalError("decline", rest.strip() or None)
                case "/dismiss":
                    raise _RefusalError("dismiss")
                case _ if command.startswith("/") and not command.startswith("//"):
                    self._screen.say(f"Allowed are {commands}; // begins a text with a /.", "red")
                case _ if line.strip() or empty:
                    return line.replace("//", "/", 1) if line.lstrip().startswith("//") else line
                case _:
                    pass

    def _look(self) -> None:
        """See whether the card still waits, when something has changed."""
        card_id = self._card["card_id"]
        if self._withdrawn or any(card["card_id"] == card_id for card in self._connection.waiting):
            return
        if self._connection.request("card", card_id=card_id)["state"] == "settled":
            raise _GoneError
        self._withdrawn = True
        self._screen.say("\nNobody waits for it any more. An answer reaches the agent as a message.", "yellow")
        self._screen.say(self._question, "yellow", end="")
        sys.stdout.flush()
