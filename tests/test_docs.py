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

from steersman.server import make_server, stream_lifespan
from steersman.services import make_services
from steersman_client import connect
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[1] / "docs"


def run_code_of(page: str) -> dict[str, Any]:
    """Run the Python of a page, and return what it defines."""
    [code] = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(code, f"docs/{page}", "exec"), namespace)
    return namespace


def real_server(state: Path) -> StdioServerParameters:
    command = ["-m", "steersman", "--standalone", "--state-dir", str(state)]
    return StdioServerParameters(command=sys.executable, args=command)


@requirement("docs:run")
async def test_the_host_in_the_documentation_runs_against_a_real_server(tmp_path: Path) -> None:
    namespace, server = run_code_of("hosts.md"), real_server(tmp_path)
    with anyio.fail_after(20):
        refused, answered = await namespace["main"](server)
    assert refused.startswith("DELEGATED_CALLER: ")
    assert answered == snapshot('{"answers":[{"id":"q","selected":["A"]}],"via":"elicitation"}')


@requirement("docs:run")
async def test_the_plain_loop_in_the_documentation_runs_a_subagent_that_asks_in_vain(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def complete(transcript: list[dict[str, Any]]) -> dict[str, Any]:
        said = [entry["content"] for entry in transcript]
        seen.append(said)
        match said[0], len(transcript):
            case "the whole task", 1:
                return calls("look", {"task": "a part"})
            case "the whole task", _:
                return {"text": f"Done: {said[-1]}", "calls": []}
            case _, 1:
                return calls("ask_user_question", {"questions": [{"question": "May I?"}]})
            case _:
                return {"text": said[-1].partition(":")[0], "calls": []}

    def calls(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"text": "", "calls": [{"id": f"call-{len(seen)}", "name": name, "arguments": arguments}]}

    with anyio.fail_after(20):
        final = await run_code_of("joining.md")["main"](real_server(tmp_path), "the whole task", complete)
    assert final == snapshot("Done: DELEGATED_CALLER")


@requirement("docs:run")
async def test_the_plain_loop_in_the_documentation_reads_what_it_is_sent() -> None:
    services = make_services([])
    server = make_server(stream_lifespan(services, realm="local"))
    with anyio.fail_after(5):
        async with connect(server) as host, host.agent(agent_id="main") as main, host.agent(owner=main) as subagent:

            async def complete(transcript: list[dict[str, Any]]) -> dict[str, Any]:
                if len(transcript) == 1:
                    await main.send(subagent.id, "Only the tests.")
                    return {"text": "", "calls": [{"id": "1", "name": "look", "arguments": {}}]}
                return {"text": f"read: {transcript[-1]['content']}", "calls": []}

            async def run_tool(*call: object) -> str:
                return "looked"

            final = await run_code_of("joining.md")["run_agent"](subagent, "look around", complete, run_tool)
    assert final == snapshot("read: Message from host main: Only the tests.")
