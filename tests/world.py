"""One server under test, and clients of it over any transport and in either era."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, cast, get_args

import anyio
import anyio.to_thread
import httpx2
import pytest
import uvicorn
from anyio.abc import SocketListener
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from steersman.journal import Event, MemoryJournal, Restored
from steersman.providers.elicitation import ElicitationProvider
from steersman.questions.requests import Provider
from steersman.server import make_server, stream_lifespan
from steersman.services import Services, make_services
from steersman.serving.lines import json_line_streams
from steersman.serving.pipe import Pipe
from steersman.serving.shared import ServerOptions, SharedServer
from steersman.serving.state_files import StateFiles
from steersman.settings import DEFAULT_HOST, HostSettings, HttpSettings, PlanModePolicy, Profile
from steersman.storage.journal import open_journal
from tests.clock import ManualClock
from tests.faults import Faults
from tests.pipes import json_lines
from tests.storage.folds import crashed, differences, folds

Wire = Literal["memory", "stdio", "pipe", "http"]
Era = Literal["legacy", "modern"]


@dataclass(frozen=True)
class Transport:
    wire: Wire
    era: Era

    @property
    def name(self) -> str:
        return f"{self.wire}-{self.era}"


TRANSPORTS = [Transport(wire, era) for wire in get_args(Wire) for era in get_args(Era)]


def over(*wires: Wire, era: Era | None = None) -> pytest.MarkDecorator:
    """Run a test that uses `connect` over these wires only, in both eras or in one."""
    chosen = [transport for transport in TRANSPORTS if transport.wire in wires and era in (None, transport.era)]
    return pytest.mark.parametrize("transport", chosen, ids=lambda transport: transport.name, indirect=True)


def in_era(era: Era) -> pytest.MarkDecorator:
    """Run a test that uses `connect` in this era only."""
    chosen = [transport for transport in TRANSPORTS if transport.era == era]
    return pytest.mark.parametrize("transport", chosen, ids=lambda transport: transport.name, indirect=True)


over_http = over("http")


@dataclass
class World:
    """A running server, its services, and the way to it."""

    transport: Transport
    services: Services
    clock: ManualClock
    host: HostSettings
    files: StateFiles
    events: Sequence[Event] = ()
    """What happened so far."""
    port: int = 0
    default_token: str = ""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def note(self, event: Event | Restored) -> None:
        self.events = (*self.events, cast("Event", event))

    async def new_token(self, label: str, *, subject: str = "local", profile: Profile | None = None) -> str:
        return await self.services.tokens.new(label, subject, profile)

    @asynccontextmanager
    async def client(
        self,
        elicit: ElicitationFnT | None = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        era: Era | None = None,
        faults: Faults | None = None,
        **options: Any,
    ) -> AsyncGenerator[Client]:
        """A connected client: a new connection on streams and in memory, a new session on HTTP.

        Args:
            elicit: the human at the host's dialog; without one the client declares no elicitation.
            token: over HTTP the bearer token; the server's first one if omitted.
            headers: over HTTP more headers.
            era: another one than the world's.
            faults: what goes wrong on the way.
            options: of `mcp.Client`.
        """
        mode = "legacy" if (era or self.transport.era) == "legacy" else "auto"
        way = self._way(token or self.default_token, headers or {})
        if faults is not None:
            way = faults.between(way)
        async with Client(way, mode=mode, elicitation_callback=elicit, cache=None, **options) as client:
            yield client

    def _way(self, token: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
        match self.transport.wire:
            case "memory":
                return InMemoryTransport(self._stream_server())
            case "stdio":
                return self._pipes()
            case "pipe":
                return self._pipe()
            case "http":
                return self._http(token, headers)

    def _stream_server(self) -> Any:
        return make_server(stream_lifespan(self.services, realm="local", host=self.host))

    @asynccontextmanager
    async def _pipes(self) -> AsyncGenerator[Any]:
        """JSON lines over two OS pipes to our stdio transport, in one process."""
        to_server, to_client = os.pipe(), os.pipe()
        server = self._stream_server()

        async def serve() -> None:
            stdin, stdout = _text(to_server[0], "rb"), _text(to_client[1], "wb")
            try:
                async with json_line_streams(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as (read, write):
                    await server.run(read, write, server.create_initialization_options())
            except* BrokenPipeError:
                pass  # the client left a call behind, whose answer nobody reads
            finally:
                stdin.close()
                with suppress(BrokenPipeError):
                    stdout.close()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            async with json_lines(to_client[0], to_server[1]) as streams:
                yield streams

    @asynccontextmanager
    async def _pipe(self) -> AsyncGenerator[Any]:
        """A real pipe, in a thread, to the server's socket: JSON lines over two OS pipes, and a Unix socket behind."""
        to_pipe, to_client = os.pipe(), os.pipe()
        pipe = Pipe(to_pipe[0], to_client[1], self.files, self.host, start=None)

        def run() -> None:
            try:
                pipe.run()
            finally:
                os.close(to_pipe[0])
                os.close(to_client[1])

        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, run)
            async with json_lines(to_client[0], to_pipe[1]) as streams:
                yield streams

    @asynccontextmanager
    async def _http(self, token: str, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
        authorization = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers={**authorization, **headers}, timeout=httpx2.Timeout(30, read=300)) as http,
            streamable_http_client(self.url, http_client=http) as streams,
        ):
            yield streams

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


def _text(descriptor: int, mode: Literal["rb", "wb"]) -> TextIOWrapper:
    return TextIOWrapper(cast("Any", os.fdopen(descriptor, mode)), encoding="utf-8")


class _Uvicorn(uvicorn.Server):
    def install_signal_handlers(self) -> None: ...


@asynccontextmanager
async def open_world(
    transport: Transport,
    state_dir: Path,
    *,
    providers: Sequence[Provider] | None = None,
    plan_mode: PlanModePolicy = "tracked",
    ask_timeout: float | None = None,
    profile: Profile | None = None,
) -> AsyncGenerator[World]:
    """Start a server and yield it; it is gone when the block ends."""
    clock, files = ManualClock(), StateFiles(state_dir)
    host = HostSettings(profile=profile, plan_mode=plan_mode, ask_timeout=ask_timeout)
    async with AsyncExitStack() as stack:
        # Behind a real pipe, a real journal too: whatever is acknowledged waits for its disk.
        is_pipe = transport.wire == "pipe"
        journal = await stack.enter_async_context(open_journal(state_dir, clock=clock)) if is_pipe else MemoryJournal()
        services = make_services(
            [ElicitationProvider()] if providers is None else providers, clock=clock, journal=journal
        )
        world = World(transport, services, clock, host, files)
        journal.fold(world.note)
        match transport.wire:
            case "pipe":
                await stack.enter_async_context(_on_a_socket(world))
            case "http":
                await stack.enter_async_context(_on_a_port(world))
            case _:
                pass
        yield world
        if is_pipe:
            # Whatever a test has done: a server that came now would know the same.
            await journal.append()
            async with crashed(state_dir, clock, providers) as after:
                different = differences(folds(services), folds(after))
                assert not different, different


@asynccontextmanager
async def _on_a_socket(world: World) -> AsyncGenerator[None]:
    files = world.files
    options = ServerOptions(HttpSettings(DEFAULT_HOST, 0, ()), world.host)
    server = SharedServer(files, options, clock=world.clock)
    server.startup.give(world.services)
    async with anyio.create_task_group() as group:
        listener = await SocketListener.from_socket(files.listen())
        group.start_soon(server.accept, listener, group)
        yield
        group.cancel_scope.cancel()


@asynccontextmanager
async def _on_a_port(world: World) -> AsyncGenerator[None]:
    from steersman.serving.http import make_app

    world.default_token = await world.new_token("test", profile=world.host.profile)
    # With IPPROTO_TCP asyncio turns Nagle's algorithm off; without it each call takes 45 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    world.port = listening.getsockname()[1]
    app = make_app(world.services, host="127.0.0.1", port=world.port, defaults=world.host)
    server = _Uvicorn(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    with listening:
        async with anyio.create_task_group() as group:

            async def serve() -> None:
                await server.serve(sockets=[listening])

            group.start_soon(serve)
            yield
            app.state.exchanges.end_streams()
            server.should_exit = True


def text(result: CallToolResult) -> str:
    """The text of a tool result."""
    [content] = result.content
    assert content.type == "text"
    return content.text


def error(result: CallToolResult) -> dict[str, Any]:
    """The error object of a failed tool result, which must say the same in text and in structure."""
    assert result.is_error
    assert result.structured_content is not None
    found: dict[str, Any] = result.structured_content["error"]
    assert text(result) == f"{found['code']}: {found['message']}"
    return found


def code(result: CallToolResult) -> str:
    return error(result)["code"]


Connect = Callable[..., AbstractAsyncContextManager[World]]
