"""Who fills the forms in: the human at the terminal, or a script in their place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, assert_never

import anyio
import anyio.to_thread

from steersman.demo.dialog import Action, Filled, Value
from steersman.demo.forms import Choice, Field, Offer, Words, YesNo
from steersman.demo.narration import Narration

T = TypeVar("T")

_OTHER: Final = "other"
_SKIP: Final = "skip"
_SCRIPTED_WORDS: Final = "Nobody may be signed out by the change."


class ScriptedPerson:
    """Takes the first offer, or the first two of several, and writes one sentence where words are asked for."""

    def __init__(self, narration: Narration) -> None:
        self._narration = narration
        self._own_words: str | None = None

    def answer_next_in_words(self, text: str) -> None:
        """Answer the next choice by Other and these words."""
        self._own_words = text

    async def fill_in(self, fields: Sequence[Field]) -> Filled:
        values: dict[str, Value] = {}
        for field in fields:
            self._narration.field(field)
            match field:
                case Words():
                    values |= {field.name: _SCRIPTED_WORDS} if field.required else {}
                case YesNo():
                    values[field.name] = field.title.casefold() != _SKIP
                case Choice():
                    values |= self._choose(field)
                case _:
                    assert_never(field)
        return Filled("accept", values)

    def _choose(self, field: Choice) -> dict[str, Value]:
        other = field.offer(_OTHER)
        if self._own_words is not None and field.own_words is not None and other is not None:
            words, self._own_words = self._own_words, None
            return {field.name: other.value, field.own_words.name: words}
        values = [offer.value for offer in field.offers]
        return {field.name: values[:2] if field.many else values[0]}


class _LeftFormError(Exception):
    def __init__(self, action: Action) -> None:
        super().__init__(action)
        self.action: Action = action


class PersonAtTerminal:
    """Asks whoever sits at the terminal, field by field. What does not fit is asked again."""

    def __init__(self, narration: Narration) -> None:
        self._narration = narration
        self._unread = b""

    async def fill_in(self, fields: Sequence[Field]) -> Filled:
        values: dict[str, Value] = {}
        try:
            for field in fields:
                self._narration.field(field)
                match field:
                    case Words():
                        words = await self._ask_words(field.required)
                        values |= {field.name: words} if words else {}
                    case YesNo():
                        values[field.name] = await self._ask("y or n", _read_yes_or_no)
                    case Choice():
                        values |= await self._choose(field)
                    case _:
                        assert_never(field)
        except _LeftFormError as left:
            return Filled(left.action)
        return Filled("accept", values)

    async def _choose(self, field: Choice) -> dict[str, Value]:
        hint = "numbers and commas" if field.many else "a number"
        hint += ", o: own words" if field.own_words is not None else ""
        hint += ", s: skip" if field.offer(_SKIP) is not None else ""
        values, in_words = await self._ask(hint, lambda line: _read_choice(field, line))
        answer: dict[str, Value] = {field.name: values if field.many else values[0]}
        if in_words and field.own_words is not None:
            answer[field.own_words.name] = await self._ask_words(True)
        return answer

    async def _ask_words(self, required: bool) -> str:
        def read(line: str) -> str:
            if required and not line.strip():
                raise ValueError("Words are needed here.")
            return line if line.strip() else ""

        return await self._ask("your words" if required else "your words, or just Enter", read)

    async def _ask(self, hint: str, read: Callable[[str], T]) -> T:
        while True:
            self._narration.prompt(f"{hint}, d: decline, c: cancel")
            line = await self._read_line()
            if line is None:
                self._narration.line()
            if line is None or line.strip() == "c":
                raise _LeftFormError("cancel")
            if line.strip() == "d":
                raise _LeftFormError("decline")
            try:
                return read(line)
            except ValueError as wrong:
                self._narration.say("", str(wrong))

    async def _read_line(self) -> str | None:
        """The next line; none at the end of input. Waits for the terminal, so that Ctrl-C needs no thread to end."""
        if sys.platform == "win32":
            typed = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            return typed.rstrip("\n") if typed else None
        while b"\n" not in self._unread:
            await anyio.wait_readable(sys.stdin.fileno())
            chunk = os.read(sys.stdin.fileno(), 4096)
            if not chunk:
                return None
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")


def _read_yes_or_no(line: str) -> bool:
    match line.strip().casefold():
        case "y" | "yes":
            return True
        case "n" | "no":
            return False
        case _:
            raise ValueError("Type y or n.")


def _read_choice(field: Choice, line: str) -> tuple[list[str], bool]:
    """The values that a line names, and whether own words are to follow."""
    values: list[str] = []
    in_words = False
    for word in line.replace(",", " ").casefold().split():
        offer = _named(field, word)
        own = field.own_words is not None and (word == "o" or (offer is not None and offer == field.offer(_OTHER)))
        in_words |= own
        if offer is not None:
            values.append(offer.value)
        elif not own:
            raise ValueError(f"{word!r} is not on offer here.")
    skip = field.offer(_SKIP)
    if not values and not in_words:
        raise ValueError("Choose something.")
    if len(set(values)) != len(values) or (not field.many and len(values) != 1):
        raise ValueError("Choose one." if not field.many else "Name each choice once.")
    if skip is not None and skip.value in values and (len(values) > 1 or in_words):
        raise ValueError("Skip stands alone.")
    return values, in_words


def _named(field: Choice, word: str) -> Offer | None:
    match word:
        case "o":
            return field.offer(_OTHER)
        case "s":
            return field.offer(_SKIP)
        case _ if word.isascii() and word.isdigit() and 1 <= int(word) <= len(field.offers):
            return field.offers[int(word) - 1]
        case _:
            return None
