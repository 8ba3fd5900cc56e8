"""The client's end of a stdio connection, on two plain descriptors and without threads."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter


@asynccontextmanager
async def json_lines(read_from: int, write_to: int) -> AsyncGenerator[Any]:
    """Yield the stream pair of an MCP transport over two descriptors, which are closed in the end."""
    os.set_blocking(read_from, False)
    os.set_blocking(write_to, False)
    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)

    async with anyio.create_task_group() as group:
        group.start_soon(_read, read_from, incoming_send)
        group.start_soon(_write, write_to, outgoing_receive)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            for stream in (incoming_send, incoming, outgoing, outgoing_receive):
                stream.close()
            os.close(write_to)
            os.close(read_from)


async def _read(descriptor: int, into: ObjectSendStream[SessionMessage | Exception]) -> None:
    rest = b""
    # What comes after the client has left is read by nobody.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with into:
            while True:
                await anyio.wait_readable(descriptor)
                data = os.read(descriptor, 65_536)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await into.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))


async def _write(descriptor: int, messages: ObjectReceiveStream[SessionMessage]) -> None:
    async for message in messages:
        data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        while data:
            await anyio.wait_writable(descriptor)
            data = data[os.write(descriptor, data) :]
