"""What one entry of the requirements manifest says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One behaviour.

    Attributes:
        says: the behaviour, as a sentence.
        source: where it comes from: a section of the design, a numbered case, or a section of the MCP specification.
    """

    says: str
    source: str
