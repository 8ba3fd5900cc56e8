"""A transport that loses, holds back and repeats chosen messages between a client and its server."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Literal

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import REQUEST_TIMEOUT, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse

Fault = Literal["lose request", "lose reply", "repeat reply", "hold reply"]
"""What is lost is replaced by what the client's own timeout would say, at once: the client gives the request up."""

FAULTS: tuple[Fault, ...] = ("lose request", "lose reply", "repeat reply", "hold reply")

_Message = SessionMessage | Exception


class Faults:
    """What goes wrong with the next calls of a method, in order."""

    def __init__(self) -> None:
        self._planned: dict[str, deque[Fault]] = {}
        self._methods: dict[Any, tuple[str, Fault | None]] = {}
        self._held = anyio.Event()
        self._cut = False
        self.happened = 0
        self.holding = 0
        """How many replies are held back."""

    def plan(self, method: str, *faults: Fault) -> None:
        """Have these happen to the next calls of a method, one each."""
        self._planned.setdefault(method, deque()).extend(faults)

    def cut(self) -> None:
        """Lose every request from here on."""
        self._cut = True

    def clear(self) -> None:
        """Let nothing go wrong from here on, and let what is held back through."""
        self._planned.clear()
        self.release()

    def release(self) -> None:
        """Let what is held back through."""
        self._held.set()
        self._held = anyio.Event()

    @asynccontextmanager
    async def between(self, way: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        """A transport as `way`, with these faults in it."""
        to_client, client_reads = anyio.create_memory_object_stream[_Message](math.inf)
        client_writes, from_client = anyio.create_memory_object_stream[SessionMessage](math.inf)
        async with way as (read, write), anyio.create_task_group() as group:
            group.start_soon(self._pass_requests, from_client, write, to_client)
            group.start_soon(self._pass_replies, read, to_client, group)
            try:
                yield client_reads, client_writes
            finally:
                group.cancel_scope.cancel()
                for stream in (to_client, client_reads, client_writes, from_client):
                    stream.close()

    async def _pass_requests(
        self,
        from_client: ObjectReceiveStream[SessionMessage],
        write: ObjectSendStream[SessionMessage],
        to_client: ObjectSendStream[_Message],
    ) -> None:
        async for message in from_client:
            request = message.message
            if isinstance(request, JSONRPCRequest):
                planned = self._planned.get(request.method)
                fault = "lose request" if self._cut else planned.popleft() if planned else None
                self.happened += fault is not None
                if fault == "lose request":
                    await to_client.send(_given_up(request.id))
                    continue
                self._methods[request.id] = (request.method, fault)
            await write.send(message)

    async def _pass_replies(
        self, read: ObjectReceiveStream[_Message], to_client: ObjectSendStream[_Message], group: Any
    ) -> None:
        async with to_client:
            async for message in read:
                reply = message.message if isinstance(message, SessionMessage) else None
                if not isinstance(reply, JSONRPCResponse | JSONRPCError):
                    await _deliver(to_client, message)
                    continue
                _, fault = self._methods.pop(reply.id, ("", None))
                match fault:
                    case "lose reply":
                        await _deliver(to_client, _given_up(reply.id))
                    case "repeat reply":
                        await _deliver(to_client, message)
                        await _deliver(to_client, message)
                    case "hold reply":
                        group.start_soon(self._pass_later, message, to_client)
                    case _:
                        await _deliver(to_client, message)

    async def _pass_later(self, message: _Message, to_client: ObjectSendStream[_Message]) -> None:
        self.holding += 1
        try:
            await self._held.wait()
        finally:
            self.holding -= 1
        await _deliver(to_client, message)


async def _deliver(to_client: ObjectSendStream[_Message], message: _Message) -> None:
    # What comes after the client has left is read by nobody.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await to_client.send(message)


def _given_up(request_id: Any) -> SessionMessage:
    error = ErrorData(code=REQUEST_TIMEOUT, message="Request timed out")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
