"""The code in the documentation runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from mcp import StdioServerParameters

from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[1] / "docs"


@requirement("docs:run")
async def test_the_host_in_the_documentation_runs_against_a_real_server(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (DOCS / "hosts.md").read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(code, "docs/hosts.md", "exec"), namespace)
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "steersman", "--standalone", "--state-dir", str(tmp_path)]
    )
    with anyio.fail_after(20):
        refused, answered = await namespace["main"](server)
    assert refused.startswith("DELEGATED_CALLER: ")
    assert answered == snapshot('{"answers":[{"id":"q","selected":["A"]}],"via":"elicitation"}')
