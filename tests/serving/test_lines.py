"""On stdio every line is answered, whatever it holds, and nobody waits for an answer that cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import TextIOWrapper
from typing import Any, cast

import anyio
import pytest

from steersman.providers.elicitation import ElicitationProvider
from steersman.server import make_server, stream_lifespan
from steersman.services import make_services
from steersman.serving.lines import json_line_streams
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"form": {}}},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
ASK: dict[str, Any] = {"name": "ask_user_question", "arguments": {"questions": [{"id": "q", "question": "?"}]}}


class Pipe:
    """The raw end of a stdio connection: lines out, messages in."""

    def __init__(self, read_from: int, write_to: int) -> None:
        self._read_from = read_from
        self._write_to = write_to
        self._rest = b""

    def send(self, line: str) -> None:
        os.write(self._write_to, line.encode() + b"\n")

    async def receive(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._read_from)
            self._rest += os.read(self._read_from, 65_536)
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


@asynccontextmanager
async def connected() -> AsyncGenerator[Pipe]:
    services = make_services([ElicitationProvider()])
    server = make_server(stream_lifespan(services, realm="local"))
    to_server, to_client = os.pipe(), os.pipe()

    async def serve() -> None:
        stdin = TextIOWrapper(cast("Any", os.fdopen(to_server[0], "rb")), encoding="utf-8", errors="replace")
        stdout = TextIOWrapper(cast("Any", os.fdopen(to_client[1], "wb")), encoding="utf-8")
        with stdin, stdout:
            async with json_line_streams(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as (read, write):
                await server.run(read, write, server.create_initialization_options())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            pipe = Pipe(to_client[0], to_server[1])
            pipe.send(json.dumps(INITIALIZE))
            assert (await pipe.receive())["result"]["protocolVersion"] == "2025-11-25"
            pipe.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            try:
                yield pipe
            finally:
                os.close(to_server[1])
        os.close(to_client[0])


def call(arguments: str) -> str:
    params = f'{{"name": "exit_plan_mode", "arguments": {arguments}}}'
    return f'{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {params}}}'


@requirement("serving:lines")
@pytest.mark.parametrize(
    ("line", "request_id", "error"),
    [
        ("not json", None, -32700),
        ("{", None, -32700),
        ("[]", None, -32600),
        ("5", None, -32600),
        ('{"jsonrpc": "2.0", "id": "a", "method": 5}', "a", -32600),
        (call('{"plan": "\\ud800"}'), 7, -32600),
        (call('{"plan": ' + "1" * 5000 + "}"), 7, -32700),
        (call('{"plan": ' + "[" * 100_000 + "]" * 100_000 + "}"), 7, -32700),
    ],
    ids=["text", "half", "list", "number", "bad method", "surrogate", "long number", "deep"],
)
async def test_a_line_that_is_no_message_is_answered_and_the_server_serves_on(
    line: str, request_id: Any, error: int
) -> None:
    async with connected() as pipe:
        # A long line needs the server to read while we write.
        await anyio.to_thread.run_sync(pipe.send, line)
        answer = await pipe.receive()
        assert answer["id"] == request_id
        assert answer["error"]["code"] == error
        pipe.send('{"jsonrpc": "2.0", "id": 8, "method": "ping"}')
        assert (await pipe.receive())["id"] == 8


@requirement("serving:lines", "answer:checked")
@pytest.mark.parametrize(
    "rest",
    [
        '"result": null',
        '"result": []',
        '"result": "Approve"',
        '"error": "x"',
        '"result": {"action": "accept", "content": {"q1": "\\ud800"}}',
    ],
)
async def test_an_answer_of_the_host_that_cannot_be_read_ends_its_call(rest: str) -> None:
    async with connected() as pipe:
        pipe.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ASK}))
        form = await pipe.receive()
        assert form["method"] == "elicitation/create"
        pipe.send(f'{{"jsonrpc": "2.0", "id": {json.dumps(form["id"])}, {rest}}}')
        result = (await pipe.receive())["result"]
        assert result["isError"]
        assert result["structuredContent"]["error"]["code"] == "ANSWER_INVALID"
