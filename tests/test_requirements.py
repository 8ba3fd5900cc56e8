"""The manifest and the tests say the same: no behaviour without a test, no test without a behaviour."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import REQUIREMENTS, requirement

TESTS = Path(__file__).parent


def marked_tests() -> Iterator[tuple[str, list[str]]]:
    """Every test function of the suite, and the behaviours it is marked with."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(TESTS)}::{node.name}", list(_marks(node))


def _marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="requirement"), args=args):
                for name in args:
                    assert isinstance(name, ast.Constant)
                    yield str(name.value)
            case _:
                pass


@requirement("suite:manifest")
def test_each_test_shows_a_behaviour_of_the_manifest() -> None:
    assert [test for test, names in marked_tests() if not names] == []
    assert {name for _, names in marked_tests() for name in names} <= REQUIREMENTS.keys()


@requirement("suite:manifest")
def test_each_behaviour_of_the_manifest_has_a_test_and_a_source() -> None:
    shown = {name for _, names in marked_tests() for name in names}
    assert sorted(REQUIREMENTS.keys() - shown) == []
    assert [name for name, entry in REQUIREMENTS.items() if not (entry.says and entry.source)] == []
