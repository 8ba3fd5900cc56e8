"""Text that somebody else wrote: how it is shown, and when two texts look alike to a reader."""

from __future__ import annotations

import unicodedata

# Zero-width joiner and non-joiner: spelling in Persian, Indic scripts and emoji, a trap elsewhere.
_JOINERS = "\u200c\u200d"

# Characters that print nothing though their category says otherwise (Unicode Default_Ignorable_Code_Point).
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _is_hidden(char: str) -> bool:
    return char in _BLANK or unicodedata.category(char) in _HIDDEN_CATEGORIES


def _is_variation_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _joins(text: str, at: int) -> bool:
    return text[at] in _JOINERS and 0 < at < len(text) - 1 and ord(text[at - 1]) > 127 < ord(text[at + 1])


def visible(text: str, *, multiline: bool = False) -> str:
    """Return `text` with every control, bidi and zero-width character spelled out as `⟦U+001B⟧`.

    What remains cannot move a cursor, reorder a line or hide. Joiners stay where they join: between two characters
    outside ASCII, as in emoji families and Persian words. Printable text comes back unchanged.

    Args:
        text: anything that an agent wrote.
        multiline: keep line feeds and tabs, for texts that are shown as a block.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    for at, char in enumerate(text):
        kept = not _is_hidden(char) or (multiline and char in "\n\t") or _joins(text, at)
        shown.append(char if kept else f"⟦U+{ord(char):04X}⟧")
    return "".join(shown)


def looks_like(text: str) -> str:
    """Return what a reader makes of `text`: two labels with the same result look the same once shown.

    NFKC, case-folded, without control, zero-width and variation characters, runs of white space as one blank.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(
        " " if char.isspace() else char
        for char in folded
        if char.isspace() or not (_is_hidden(char) or _is_variation_selector(char))
    )
    return " ".join(kept.split())


def is_unicode(text: str) -> bool:
    """Whether `text` can be written as UTF-8: JSON lets lone surrogates in, UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
