"""What the demo tells on standard output: readable with colour and without."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final, Literal, cast

from rich.console import Console
from rich.text import Text

from steersman.demo.forms import Choice, Field
from steersman.text import visible

Speaker = Literal["host", "main", "subagent", "control", "human", "checked", "FAILED", ""]

_INDENT: Final = 10
_STYLES: Final = {
    "host": "dim",
    "main": "bold cyan",
    "subagent": "bold magenta",
    "control": "magenta",
    "human": "bold yellow",
    "checked": "green",
    "FAILED": "bold red",
}


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads on, as with `| head`: go on without a word, for the exit status."""
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())
        os.close(silence)


class Narration:
    """Prints who does what, line by line. Text that came over the wire moves no cursor."""

    def __init__(self) -> None:
        # What people write is shown on every terminal, if need be spelled out.
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(errors="backslashreplace")
        self._console = _Screen(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._message = ""

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style))

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, "bold")

    def say(self, who: Speaker, text: str) -> None:
        width = max(self._console.width - _INDENT, 30) if self._console.is_terminal else sys.maxsize
        label = who
        for line in Text(visible(text, multiline=True)).wrap(self._console, width):
            line.rstrip()
            shown = Text.assemble((f"{label:<{_INDENT}}", _STYLES.get(label, "")), line)
            self._console.print(shown if shown.plain.strip() else "")
            label = ""

    def form(self, message: str) -> None:
        """Show what a form says above its fields."""
        self._message = message
        self.say("human", "reads:")
        self.say("", message)

    def field(self, field: Field) -> None:
        """Show a field of the form, leaving out what stood above already."""
        read = self._message.splitlines()
        self.say("", f"[{field.title}]")
        for line in field.description.splitlines():
            if not any(above.endswith(line) for above in read):
                self.say("", f"  {line}")
        if isinstance(field, Choice):
            for number, offer in enumerate(field.offers, start=1):
                self.say("", f"  {number}) {offer.title}")

    def prompt(self, hint: str) -> None:
        self._console.print(Text(f"{'':{_INDENT}}({hint}) > ", "yellow"), end="")
