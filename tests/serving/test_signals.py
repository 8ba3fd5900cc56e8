"""How a server process ends: by a signal, by its host closing the pipe, and never with a question left open."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from steersman_client import connect
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SECONDS: Final = 5
QUESTION: Final = {"questions": [{"id": "q1", "question": "Go on?", "options": [{"label": "Yes"}, {"label": "No"}]}]}
Era = Literal["legacy", "modern"]
SIGNALS: Final = [signal.SIGINT, signal.SIGTERM]

both_signals = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])
shared_or_alone = pytest.mark.parametrize("how", [[], ["--standalone"]], ids=["shared", "standalone"])


class SilentHuman:
    """A host's dialog that shows a form and never gets an answer."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


@asynccontextmanager
async def process(tmp_path: Path, *arguments: str, **options: Any) -> AsyncGenerator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "steersman", *arguments, "--state-dir", str(tmp_path / "state")]
    pipe = subprocess.PIPE
    # Popen, because the transport below needs real files; starting it is quick.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8", **options) as started:
        try:
            with anyio.fail_after(4 * SECONDS):
                yield started
        finally:
            started.kill()


async def exit_code(started: subprocess.Popen[str]) -> int:
    with anyio.fail_after(SECONDS):
        return await anyio.to_thread.run_sync(started.wait, abandon_on_cancel=True)


@asynccontextmanager
async def over_pipe(started: subprocess.Popen[str], era: Era, human: SilentHuman) -> AsyncGenerator[Client]:
    @asynccontextmanager
    async def way() -> AsyncGenerator[Any]:
        # The SDK's JSON lines transport, turned round: it reads what the server writes.
        stdin, stdout = cast("IO[str]", started.stdout), cast("IO[str]", started.stdin)
        async with stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as streams:
            yield streams

    mode = "legacy" if era == "legacy" else "auto"
    async with Client(way(), mode=mode, elicitation_callback=human, cache=None) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, token: str, era: Era, human: SilentHuman) -> AsyncGenerator[Client]:
    mode = "legacy" if era == "legacy" else "auto"
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=human, cache=None
        ) as client,
    ):
        yield client


async def listening(started: subprocess.Popen[str]) -> str:
    """The URL that a server says it listens on."""
    assert started.stderr is not None
    with anyio.fail_after(2 * SECONDS):
        while line := await anyio.to_thread.run_sync(started.stderr.readline, abandon_on_cancel=True):
            if found := re.search(r"http://\S+", line):
                return found[0]
    raise AssertionError("the server ended before it listened")


@requirement("serving:connections")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the limits of a process from /proc")
async def test_an_http_server_may_hold_as_many_connections_as_the_system_lets_it(tmp_path: Path) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 512))

    async with process(tmp_path, "serve", "--port", "0", preexec_fn=lower) as started:
        await listening(started)
        limits = await anyio.Path(f"/proc/{started.pid}/limits").read_text()
        assert re.search(r"Max open files +512 +512 ", limits)


@requirement("serving:signals")
@both_signals
async def test_a_server_with_agents_that_wait_for_work_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    async with process(tmp_path, "serve", "--port", "0") as started:
        async with connect(await listening(started), token=token_of(tmp_path)) as host:
            agent = await host.enter()
            ended: list[bool] = []

            async def wait(seen: int) -> None:
                ended.append((await agent.watch(seen=seen, wait=60)).waiting == 0)

            version = (await agent.watch(seen=0)).version
            async with anyio.create_task_group() as group:
                group.start_soon(wait, version)
                await anyio.wait_all_tasks_blocked()
                for _ in range(3):
                    await host.agents()  # sent later, answered before: the watch waits in the server
                started.send_signal(number)
                assert await exit_code(started) == 0
            assert ended == [True]


def token_of(tmp_path: Path) -> str:
    return (tmp_path / "state" / "token").read_text().strip()


async def ask(client: Client, results: list[CallToolResult]) -> None:
    # A connection that ends without an answer leaves no result.
    with suppress(MCPError):
        results.append(await client.call_tool("ask_user_question", QUESTION))


async def end_while_a_question_is_open(
    client: Client, human: SilentHuman, started: subprocess.Popen[str], number: signal.Signals, era: Era
) -> None:
    results: list[CallToolResult] = []

    async with anyio.create_task_group() as group:
        group.start_soon(ask, client, results)
        with anyio.fail_after(SECONDS):
            await human.asked.wait()
        started.send_signal(number)
        assert await exit_code(started) == 0
        if era == "modern":
            # Nothing is open between two rounds: the form is the host's own, which has yet to call again.
            group.cancel_scope.cancel()
    if era == "legacy":
        [result] = results
        assert result.structured_content is not None
        assert result.structured_content["error"]["code"] == "ASK_ABORTED"


@requirement("serving:signals")
@both_signals
@both_eras
@shared_or_alone
async def test_a_signal_ends_a_pipe_server_and_withdraws_its_question(
    tmp_path: Path, how: list[str], era: Era, number: signal.Signals
) -> None:
    human = SilentHuman()
    async with process(tmp_path, *how) as started, over_pipe(started, era, human) as client:
        await end_while_a_question_is_open(client, human, started, number, era)


@requirement("serving:signals")
@both_signals
@both_eras
async def test_a_signal_ends_an_http_server_and_withdraws_its_question(
    tmp_path: Path, era: Era, number: signal.Signals
) -> None:
    human = SilentHuman()
    async with process(tmp_path, "serve", "--port", "0") as started:
        url = await listening(started)
        async with over_http(url, token_of(tmp_path), era, human) as client:
            await end_while_a_question_is_open(client, human, started, number, era)
        assert started.stderr is not None
        assert started.stderr.read() == ""


@requirement("serving:signals")
@both_signals
@shared_or_alone
async def test_a_signal_ends_an_idle_pipe_server(tmp_path: Path, how: list[str], number: signal.Signals) -> None:
    async with process(tmp_path, *how) as started, over_pipe(started, "legacy", SilentHuman()) as client:
        await client.list_tools()
        started.send_signal(number)
        assert await exit_code(started) == 0


@requirement("serving:signals")
async def test_a_second_signal_ends_an_http_server_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, "serve", "--port", "0") as started:
        url = await listening(started)
        # A request whose body never comes holds the orderly end up.
        port = int(url.split(":")[2].split("/")[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token_of(tmp_path)}\r\n"
            await stream.send(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode())
            started.send_signal(signal.SIGTERM)
            started.send_signal(signal.SIGINT)
            assert await exit_code(started) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


INITIALIZE: Final = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"0"}}}\n'
    '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


@requirement("serving:signals")
@shared_or_alone
async def test_a_pipe_server_with_an_open_question_ends_when_its_host_closes_the_pipe(
    tmp_path: Path, how: list[str]
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call |= {"params": {"name": "ask_user_question", "arguments": QUESTION}}
    async with process(tmp_path, *how) as started:
        stdin, stdout = cast("IO[str]", started.stdin), cast("IO[str]", started.stdout)

        def until_the_form_is_shown() -> str:
            stdin.write(INITIALIZE + json.dumps(call) + "\n")
            stdin.flush()
            stdout.readline()
            return stdout.readline()

        with anyio.fail_after(SECONDS):
            line = await anyio.to_thread.run_sync(until_the_form_is_shown, abandon_on_cancel=True)
        assert json.loads(line)["method"] == "elicitation/create"
        stdin.close()
        assert await exit_code(started) == 0
        assert started.stderr is not None
        assert started.stderr.read() == ""


@requirement("serving:signals")
@shared_or_alone
async def test_a_pipe_server_whose_answers_nobody_reads_ends_with_its_pipe(tmp_path: Path, how: list[str]) -> None:
    lines = "".join(f'{{"jsonrpc":"2.0","id":{number},"method":"tools/list"}}\n' for number in range(1, 101))
    async with process(tmp_path, *how) as started:
        stdin = cast("IO[str]", started.stdin)

        def write_all() -> None:
            stdin.write(INITIALIZE + lines)
            stdin.close()

        # Its answers are more than the pipe holds, so that one of them is stuck when the pipe ends.
        with anyio.fail_after(SECONDS):
            await anyio.to_thread.run_sync(write_all, abandon_on_cancel=True)
        assert await exit_code(started) == 0


@requirement("serving:signals")
@pytest.mark.parametrize("gone", [False, True], ids=["stopped reading", "gone"])
@shared_or_alone
async def test_a_pipe_server_whose_host_reads_no_more_ends_without_a_word(
    tmp_path: Path, how: list[str], gone: bool
) -> None:
    async with process(tmp_path, *how) as started:
        stdin, stdout = cast("IO[str]", started.stdin), cast("IO[str]", started.stdout)
        stdout.close()
        stdin.write(INITIALIZE)
        stdin.flush()
        if gone:
            stdin.close()
        assert await exit_code(started) == 0
        assert started.stderr is not None
        assert started.stderr.read() == ""


@requirement("serving:signals")
@shared_or_alone
async def test_requests_that_came_before_the_end_of_the_pipe_are_answered(tmp_path: Path, how: list[str]) -> None:
    async with process(tmp_path, *how) as started:

        def talk() -> tuple[str, str]:
            return started.communicate(INITIALIZE, timeout=SECONDS)

        out, err = await anyio.to_thread.run_sync(talk, abandon_on_cancel=True)
        assert (started.returncode, err) == (0, "")
        assert json.loads(out)["result"]["protocolVersion"] == "2025-11-25"
