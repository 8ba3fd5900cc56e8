"""Answers given on the command line, for scripts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from steersman.json_values import is_list
from steersman.plans import APPROVE, KEEP_PLANNING
from steersman.settings import SettingsError

_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_answers(text: str) -> list[Any]:
    """What `--answers` holds: a JSON list of `{id, selected?, custom?, skipped?}`, or `-` for one on stdin.

    Raises:
        SettingsError: it is no JSON list.
    """
    raw = sys.stdin.read() if text == "-" else text
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not is_list(found):
        raise SettingsError(
            "--answers: found no JSON list; allowed is one of {id, selected?, custom?, skipped?}, or - for one on "
            "stdin."
        )
    return list(found)


def answer_one(
    card: Mapping[str, Any], *, select: Sequence[str], text: str | None, skip: bool, approve: bool, keep: bool
) -> list[Any]:
    """The answers to a card of one question, from flags.

    Raises:
        SettingsError: the flags do not fit the card, or one another.
    """
    if approve or keep:
        if "plan" not in card:
            raise SettingsError("--approve and --keep-planning: found a card that reviews no plan. Use --select.")
        if select or skip or (approve and (keep or text is not None)):
            raise SettingsError("found more than one decision; allowed is --approve, or --keep-planning with --text.")
        labels = [APPROVE] if approve else [] if text is not None else [KEEP_PLANNING]
        return [_answer(card["questions"][0], labels, text, skip=False)]
    if len(card["questions"]) != 1:
        raise SettingsError(
            f"found a card of {len(card['questions'])} questions; --select, --text and --skip are for one of one "
            "question. Use --answers."
        )
    return [_answer(card["questions"][0], select, text, skip=skip)]


def _answer(question: Mapping[str, Any], select: Sequence[str], text: str | None, *, skip: bool) -> Mapping[str, Any]:
    given: dict[str, Any] = {"id": question["id"], "selected": list(select), "skipped": skip}
    return given if text is None else {**given, "custom": text}


def read_age(text: str) -> int:
    """Seconds, from a text such as `30d`. Raises `SettingsError`."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"--older-than: found {text[:40]!a}; allowed is a number with s, m, h, d or w, as in 30d.")
    return int(found[1]) * _SECONDS[found[2]]
