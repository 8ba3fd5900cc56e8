"""`steersman demo`: a small host, with agents whose moves are scripted, against a real server process.

Whatever it says of the server it checks against what came over the wire, and it fails if something is not so.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import anyio
import httpx2
from mcp.shared.exceptions import MCPError

from steersman.demo.connection import ServerFailedError, ServerFiles, connect
from steersman.demo.dialog import Dialog
from steersman.demo.narration import Narration
from steersman.demo.people import PersonAtTerminal, ScriptedPerson
from steersman.demo.stage import DoesNotHoldError, Stage
from steersman.demo.steering_story import steer_a_subagent
from steersman.demo.stories import ask_the_human, have_a_plan_reviewed, refuse_a_subagent
from steersman_client import HostMethodError

_FAILURES: Final = (
    DoesNotHoldError,
    ServerFailedError,
    HostMethodError,
    MCPError,
    OSError,
    httpx2.HTTPError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)


def run_demo(*, http: bool = False, auto: bool = False, server_command: Sequence[str] | None = None) -> int:
    """Run the demo and tell it on standard output.

    Args:
        http: connect over streamable HTTP, in place of stdio.
        auto: let a script answer for the human. So it does where standard input is no terminal.
        server_command: what to start as the server in place of this package; its arguments are added.

    Returns:
        The exit status: 0 if everything that the demo claims holds, 1 if not, 128 and the signal's number if a
        signal ended it.
    """
    try:
        return anyio.run(_run, http, auto, server_command)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


async def _run(http: bool, auto: bool, server_command: Sequence[str] | None) -> int:
    narration = Narration()
    narration.line(
        f"Steersman demo: a small host and a real server process, over {'HTTP' if http else 'stdio'}.", "bold"
    )
    narration.line("No model runs here: what the agents do is scripted, what they are told comes over the wire.")
    scripted = auto or not sys.stdin.isatty()
    if scripted:
        why = "--auto" if auto else "standard input is no terminal"
        narration.line(f"A script answers for the human ({why}).")
    script = ScriptedPerson(narration) if scripted else None
    dialog = Dialog(narration, script or PersonAtTerminal(narration))

    signals: list[int] = []
    failures: list[Exception] = []
    with tempfile.TemporaryDirectory(prefix="steersman-demo-") as folder:
        files = ServerFiles(Path(folder))
        async with anyio.create_task_group() as group:
            if sys.platform != "win32":
                group.start_soon(_stop_on_signal, group.cancel_scope, signals)
            try:
                async with connect(files, http=http, server_command=server_command, elicitation=dialog) as client:
                    try:
                        await _tell(Stage(client, dialog, narration, script))
                    except _FAILURES as failure:
                        failures.append(failure)
            except Exception as failure:
                if not all(isinstance(leaf, _FAILURES) for leaf in _leaves(failure)):
                    raise
                failures += _leaves(failure)
            group.cancel_scope.cancel()
        if signals:
            narration.line()
            narration.say("host", f"ended by {signal.Signals(signals[0]).name}")
            return 128 + signals[0]
        for failure in failures[:1]:
            _say_failure(narration, failure, files)
    return 1 if failures else 0


async def _tell(stage: Stage) -> None:
    client = stage.client
    server = client.server_info
    name = f"{server.name} {server.version}" if server is not None else "a server without a name"
    tools = ", ".join(tool.name for tool in (await client.list_tools()).tools)
    stage.narration.say("host", f"is connected to {name} by MCP {client.protocol_version}; its tools: {tools}")
    async with stage.host.agent(label="main") as main:
        stage.narration.say("host", f"enters main as {main.id}, owner: {main.parent_session or 'none'}")
        decisions = await ask_the_human(stage, main)
        await have_a_plan_reviewed(stage, main, decisions)
        await refuse_a_subagent(stage, main)
        await steer_a_subagent(stage, main)
    stage.narration.heading("What was seen")
    alive = [agent["agent_id"] for agent in await stage.agents() if agent["status"] in ("live", "running", "idle")]
    stage.check(not alive, "no agent is left alive", alive)
    calls = ", ".join(f"{count} {code or 'answered'}" for code, count in stage.codes.items())
    counted = f"{stage.codes.total()} tool calls: {calls}; {stage.dialog.shown} forms shown to the human"
    stage.narration.line(f"{counted}; {stage.checked} claims checked, all hold.")


def _say_failure(narration: Narration, failure: Exception, files: ServerFiles) -> None:
    if isinstance(failure, DoesNotHoldError):
        narration.say("FAILED", f"This does not hold: {failure}")
        return
    narration.say("FAILED", f"The demo could not go on. {type(failure).__name__}: {failure}")
    for line in files.last_log_lines():
        narration.say("", f"server log: {line}")


def _leaves(failure: Exception) -> Iterator[Exception]:
    if isinstance(failure, ExceptionGroup):
        for inner in cast("ExceptionGroup[Exception]", failure).exceptions:
            yield from _leaves(inner)
    else:
        yield failure


async def _stop_on_signal(scope: anyio.CancelScope, signals: list[int]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for number in received:
            signals.append(number)
            scope.cancel()
            return
