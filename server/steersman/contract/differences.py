"""Compares a `tools/list` that somebody saved with the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steersman.canonical import canonical
from steersman.contract.files import tools
from steersman.json_values import is_object


def contract_differences(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say, a line each, where `listed` departs from the contract; nothing if it is the same.

    Compared as canonical JSON, because SDKs reorder keys on the way; the order of the list counts.
    """
    found: list[str] = []
    expected = tools()
    names = [str(tool.get("name")) for tool in listed]
    wanted = [tool["name"] for tool in expected]
    if names != wanted:
        found.append(f"the tools are {names}, the contract has {wanted} in this order")
    by_name = dict(zip(names, listed, strict=True))
    for tool in expected:
        other = by_name.get(tool["name"])
        if other is not None:
            _compare(tool["name"], tool, other, found)
    return found


def _compare(path: str, expected: object, got: object, found: list[str]) -> None:
    if is_object(expected) and is_object(got):
        found.extend(f"{path}.{key} is missing" for key in expected if key not in got)
        found.extend(f"{path}.{key} is not in the contract" for key in got if key not in expected)
        for key in expected:
            if key in got:
                _compare(f"{path}.{key}", expected[key], got[key], found)
    elif canonical(expected) != canonical(got):
        found.append(f"{path} is {canonical(got)}, the contract has {canonical(expected)}")
