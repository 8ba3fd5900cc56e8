"""The SDK's stdio transport, with an answer to every line: it drops the lines that it cannot read."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId

from steersman.json_values import is_object

Incoming = ReadStream[SessionMessage | Exception]
Outgoing = WriteStream[SessionMessage]

_ID: Final = re.compile(r'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")')
_METHOD: Final = re.compile(r'"method"\s*:')


@asynccontextmanager
async def json_line_streams(
    stdin: anyio.AsyncFile[str], stdout: anyio.AsyncFile[str] | None = None
) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """The streams of an MCP connection over two files of JSON lines.

    A line that is no JSON-RPC message is answered with a JSON-RPC error, under its id if it has one: -32600 for JSON,
    -32700 for anything else. A response to a request of ours that cannot be read becomes an error of that request
    (-32700), so that nobody waits for it.
    """
    lines = _Lines(stdin)
    async with stdio_server(cast("anyio.AsyncFile[str]", lines), stdout) as (read, write):
        yield _AnsweringStream(read, write, lines), write


class _Lines:
    """The lines of a file, and the last one it gave."""

    def __init__(self, file: anyio.AsyncFile[str]) -> None:
        self._file = file
        self.last = ""

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._file:
            self.last = line
            yield line


class _AnsweringStream:
    """A read stream that answers what cannot be read instead of passing it on."""

    def __init__(self, inner: Incoming, write: Outgoing, lines: _Lines) -> None:
        self._inner = inner
        self._write = write
        self._lines = lines

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._inner.receive()
            if not isinstance(item, Exception):
                return item
            # The reader waits until an item is taken, and has read no line since this one.
            answer, is_ours = _answer(self._lines.last)
            if is_ours:
                return SessionMessage(answer)
            await self._write.send(SessionMessage(answer))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _answer(line: str) -> tuple[JSONRPCError, bool]:
    """What to say to a line, and whether it is the answer to a request of ours."""
    try:
        message: object = json.loads(line)
    except (ValueError, RecursionError):
        found = _ID.search(line)
        given = cast("RequestId | None", json.loads(found[1]) if found else None)
        error = ErrorData(code=PARSE_ERROR, message="Parse error: the line is not JSON that can be read")
        return JSONRPCError(jsonrpc="2.0", id=given, error=error), given is not None and not _METHOD.search(line)
    member = message.get("id") if is_object(message) else None
    given = member if isinstance(member, int | str) and not isinstance(member, bool) else None
    is_ours = given is not None and is_object(message) and "method" not in message
    text = "Invalid request: the line is JSON, but no JSON-RPC message, or holds text that is not valid Unicode"
    error = ErrorData(code=PARSE_ERROR if is_ours else INVALID_REQUEST, message=text)
    return JSONRPCError(jsonrpc="2.0", id=given, error=error), is_ours
