"""The frozen contract as it lies on disk: loaded once, generated never."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from steersman.canonical import digest

VERSION: Final = "v1"
TOOL_NAMES: Final = ("ask_user_question", "exit_plan_mode", "steer_subagent")
"""The tools, in the order `tools/list` sends them."""

_FILES: Final = (*TOOL_NAMES, "errors", "server", "host")


def contract_dir() -> Path:
    """The folder of the contract: packed with an installed package, else the repository's own."""
    packed = Path(str(files("steersman"))) / "_packed" / "schemas" / VERSION
    if packed.is_dir():
        return packed
    return Path(__file__).resolve().parents[3] / "schemas" / VERSION


@cache
def load(name: str) -> Mapping[str, Any]:
    """One file of the contract, by its name without `.json`."""
    return json.loads((contract_dir() / f"{name}.json").read_text(encoding="utf-8"))


def tools() -> list[Mapping[str, Any]]:
    """The tool objects as `tools/list` sends them, in their order."""
    return [load(name) for name in TOOL_NAMES]


def contract_digest() -> str:
    """The SHA-256 of the canonical JSON of `{file name: content}` over all files of the contract."""
    return digest({f"{name}.json": load(name) for name in _FILES})


def released_digest() -> str:
    """The digest that `CONTRACT.sha256` pins."""
    return (contract_dir() / "CONTRACT.sha256").read_text(encoding="ascii").strip()
