"""One connection of the server's socket: a host's pipe, as an MCP connection."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
from anyio.abc import SocketStream
from mcp.server.lowlevel import Server

from steersman.agents import PIPE_KEY
from steersman.credentials import secret_hash
from steersman.errors import ToolError
from steersman.registry import Binding
from steersman.server import CONNECTION_LABEL, Bindings, Context, make_server
from steersman.services import Services
from steersman.serving.lines import json_line_streams
from steersman.serving.wire import READ_BYTES, Lines, control_line, read_control
from steersman.settings import HostSettings
from steersman.tokens import LOCAL_REALM

GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What is raised for a connection that is not there any more."""


class Startup:
    """The services of a server that may still be starting: who needs them waits."""

    def __init__(self, services: Services | None = None) -> None:
        self._services = services
        self._refusal = ""
        self._settled = anyio.Event()
        if services is not None:
            self._settled.set()

    def give(self, services: Services) -> None:
        self._services = services
        self._settled.set()

    def refuse(self, reason: str) -> None:
        """There will be none, for a reason that stands in whole sentences."""
        self._services, self._refusal = None, reason
        self._settled.set()

    async def services(self) -> Services:
        """Wait for them.

        Raises:
            ToolError: `SERVER_UNAVAILABLE`.
        """
        await self._settled.wait()
        if self._services is None:
            raise ToolError("SERVER_UNAVAILABLE", reason=self._refusal)
        return self._services


class SocketLines:
    """The lines of one connection, each way."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._lines = Lines()
        self._whole: list[bytes] = []
        self._sending = anyio.Lock()

    async def receive(self, limit: float = math.inf) -> bytes | None:
        """The next line, without its end; none at the end of the connection.

        Args:
            limit: how many bytes may come before the first line ends; more count as the end.
        """
        read = 0
        while not self._whole:
            try:
                data = await self._stream.receive(READ_BYTES)
            except (anyio.EndOfStream, *GONE):
                return None
            read += len(data)
            self._whole = self._lines.feed(data)[::-1]
            if read > limit:
                return None
        return self._whole.pop()

    async def send(self, data: bytes) -> None:
        """Raises one of `GONE` if nobody reads any more."""
        async with self._sending:
            await self._stream.send(data)

    async def send_control(self, message: Mapping[str, object]) -> None:
        await self.send(control_line(message))


class PipeConnection:
    """A host behind its pipe.

    Args:
        startup: the server's services.
        lines: behind the hello.
        key: names the pipe for good.
        host: what holds for the host.
        retire: is given the version of a pipe that asks the server to make room, and says whether it does so now.
    """

    def __init__(
        self, startup: Startup, lines: SocketLines, key: str, host: HostSettings, retire: Callable[[str], bool]
    ) -> None:
        self._startup = startup
        self._lines = lines
        self._key = PIPE_KEY + secret_hash(key)
        self._host = host
        self._binding: Binding | None = None
        self._bound = anyio.Event()
        self._said_bye = False
        self._retire = retire

    async def serve(self) -> None:
        """Serve the host until its pipe closes or is gone."""
        services: Services | None = None
        server = make_server(self._lifespan)
        try:
            async with anyio.create_task_group() as group:

                async def bind() -> None:
                    nonlocal services
                    # At once, not with the first call: it may be back from a server that died, and its agents wait.
                    with suppress(ToolError):
                        services = await self._startup.services()
                        self._binding = services.registry.connect(
                            LOCAL_REALM, self._key, label=CONNECTION_LABEL, host=self._host
                        )
                    self._bound.set()

                group.start_soon(bind)
                stdin, stdout = cast("anyio.AsyncFile[str]", self), cast("anyio.AsyncFile[str]", _Output(self._lines))
                async with json_line_streams(stdin, stdout) as (read, write):
                    await server.run(read, write, server.create_initialization_options())
                group.cancel_scope.cancel()
        except* GONE:
            pass  # what was to be told it has no reader
        finally:
            if services is not None and self._binding is not None:
                if self._said_bye:
                    services.registry.close(self._binding)
                else:
                    services.registry.disconnect(self._binding)

    async def of(self, ctx: Context) -> tuple[Services, Binding]:
        services = await self._startup.services()
        await self._bound.wait()
        assert self._binding is not None
        return services, self._binding

    @asynccontextmanager
    async def _lifespan(self, _: Server[Bindings]) -> AsyncGenerator[Bindings]:
        yield self

    async def __aiter__(self) -> AsyncIterator[str]:
        """The host's lines."""
        while (line := await self._lines.receive()) is not None:
            control = read_control(line)
            if control is None:
                yield line.decode("utf-8", "replace") + "\n"
            elif "bye" in control:
                self._said_bye = True
                return
            elif isinstance(version := control.get("retire"), str) and not self._retire(version):
                await self._lines.send_control({"retire": "busy"})


class _Output:
    """The other way: what the SDK writes, as a file of text."""

    def __init__(self, lines: SocketLines) -> None:
        self._lines = lines

    async def write(self, text: str) -> Any:
        await self._lines.send(text.encode())

    async def flush(self) -> None:
        pass
