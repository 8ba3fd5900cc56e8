"""Text that somebody else wrote: how it is shown, and when two texts look alike to a reader."""

from __future__ import annotations

import re
import unicodedata

# Zero-width joiner and non-joiner: spelling in Persian, Indic scripts and emoji, a trap elsewhere.
_JOINERS = "\u200c\u200d"

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# What prints nothing though its category says otherwise: Unicode's Default_Ignorable_Code_Point, and the Braille blank.
_IGNORABLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE00FF),
    (0xE01F0, 0xE0FFF),
)


# What `str.isprintable` lets through and has to be looked at all the same.
_ODD = re.compile(
    "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in _IGNORABLE) + "\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)


def _is_hidden(char: str) -> bool:
    point = ord(char)
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or any(low <= point <= high for low, high in _IGNORABLE)


def _is_variation_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _is_shown(char: str) -> bool:
    return bool(char) and not _is_hidden(char) and not _is_variation_selector(char)


def _joins(text: str, at: int) -> bool:
    """Whether the joiner there stands between two shown characters outside ASCII, one variation selector aside."""
    before = text[at - 2 : at - 1] if at > 1 and _is_variation_selector(text[at - 1]) else text[max(0, at - 1) : at]
    after = text[at + 1 : at + 2]
    return _is_shown(before) and _is_shown(after) and not (before.isascii() or after.isascii())


def _varies(text: str, at: int) -> bool:
    """Whether the variation selector there has something to vary: one for each character, none for Latin letters."""
    before = text[max(0, at - 1) : at]
    if not _is_shown(before) or (before.isascii() and before.isalpha()):
        return False
    return text[at] <= "\ufe0f" or unicodedata.category(before) == "Lo"


def _is_plain(text: str, at: int) -> bool:
    char = text[at]
    if char in _JOINERS:
        return _joins(text, at)
    return _varies(text, at) if _is_variation_selector(char) else not _is_hidden(char)


def visible(text: str, *, multiline: bool = False) -> str:
    """Return `text` with every control, bidi and zero-width character spelled out as `⟦U+001B⟧`.

    What remains cannot move a cursor, reorder a line or hide. Joiners and variation selectors stay where they do their
    work, as in emoji families and Persian words. Printable text comes back unchanged.

    Args:
        text: anything that an agent wrote.
        multiline: keep line feeds and tabs, for texts that are shown as a block.
    """
    if multiline:
        return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))
    if text.isprintable() and not _ODD.search(text):
        return text
    return "".join(char if _is_plain(text, at) else f"⟦U+{ord(char):04X}⟧" for at, char in enumerate(text))


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
