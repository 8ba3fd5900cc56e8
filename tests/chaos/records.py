"""What a process of the chaos run knows to have happened, written down at once: a killed process loses none of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Record:
    """One file of JSON objects, a line each, with the name of what happened as `event`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        # The system has it when this returns, whatever becomes of the process.
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        assert os.write(self._descriptor, line) == len(line)


def read(path: Path) -> list[Mapping[str, Any]]:
    """All that was written so far; nothing of a line that is being written."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]
