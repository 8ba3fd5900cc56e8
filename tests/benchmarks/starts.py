"""How long a host waits for the tools of a pipe that it starts, against the bare SDK's server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from anyio import to_thread

from tests.benchmarks.pairs import Row, Sample, compare
from tests.benchmarks.processes import ROOT
from tests.processes import control, gone, server_pid

LIMIT_RUNNING: Final = 1 / 3
LIMIT_STARTING: Final = 1.6

_HELLO: Final[Sequence[dict[str, Any]]] = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "0"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)


def _start(command: Sequence[str]) -> float:
    """Seconds from the start of a process to its list of tools."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        reply: dict[str, Any] = {}
        for message in _HELLO:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
            if "id" in message:
                reply = json.loads(process.stdout.readline())
                assert reply["id"] == message["id"]
        seconds = time.perf_counter() - started
        assert "ask_user_question" in str(reply["result"])
        process.stdin.close()
    return seconds


def _sample(*command: str) -> Sample:
    async def sample() -> float:
        return await to_thread.run_sync(_start, command)

    return sample


async def rows() -> list[Row]:
    bare = _sample("tests.benchmarks.bare")
    with TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        pipe = _sample("steersman", "--state-dir", str(state))

        async def stop() -> None:
            pid = await server_pid(state)
            await control(state, "stop")
            await gone(pid)

        async def first_pipe() -> float:
            seconds = await pipe()
            await stop()
            return seconds

        starting = await compare("first pipe, starts the server / bare SDK", bare, first_pipe, limit=LIMIT_STARTING)
        await pipe()
        running = await compare("further pipe to its tools / bare SDK", bare, pipe, limit=LIMIT_RUNNING)
        await stop()
        return [running, starting]
