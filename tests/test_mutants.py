"""A suite that cannot fail guards nothing: with each of these rules taken out, it goes red."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import requirement

ROOT = Path(__file__).parents[1]


def failures(mutant: str | None, *tests: str) -> int:
    """How many of the tests fail, over the in-memory transport, with a rule taken out."""
    plugin = ["-p", f"tests.mutants.{mutant}"] if mutant else []
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=3", "-k", "not http and not stdio"]
    command += ["-p", "no:cacheprovider", *plugin, *(f"tests/{test}" for test in tests)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.search(r"(\d+) failed", done.stdout)
    return int(found[1]) if found else 0


@requirement("suite:can-fail")
@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        ("no_guard", "test_guard.py"),
        ("no_answer_check", "test_answers.py"),
        ("no_approval_rule", "test_plans.py"),
        ("changed_word", "test_contract.py"),
        ("no_last_look", "test_steering.py"),
        ("no_notice", "test_steering.py"),
    ],
)
def test_the_suite_goes_red_without_the_rule_and_is_green_with_it(mutant: str, test: str) -> None:
    assert failures(mutant, test) > 0
    assert failures(None, test) == 0
