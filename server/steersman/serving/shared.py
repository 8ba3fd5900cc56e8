"""The one server of a state directory: all hosts of a user meet in it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus

from steersman import __version__
from steersman.clock import Clock, SystemClock, wait_for
from steersman.logs import describe
from steersman.providers.elicitation import ElicitationProvider
from steersman.services import Services, make_services
from steersman.serving.connections import GONE, PipeConnection, SocketLines, Startup
from steersman.serving.control import ControlConnection
from steersman.serving.state_files import StateDirError, StateFiles, check_peer
from steersman.serving.wire import host_from_json, is_newer, read_control
from steersman.settings import CommandError, HostSettings, HttpSettings, SettingsError
from steersman.tokens import LOCAL_REALM

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from steersman.serving.http import HttpServer
    from steersman.storage.journal import SqlJournal

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 10.0
HELLO_BYTES: Final = 64 * 1024
"""How long a connection may take until it has said who it is, and how long that may be."""
FAREWELL_SECONDS: Final = 0.3
"""How long the answers to withdrawn questions, and the word that the server ends, are given to go out."""
FORGOTTEN_SECONDS: Final = 24 * 3600.0
"""An open question keeps a server without connections from ending for so long."""


@dataclass(frozen=True)
class ServerOptions:
    """What one server is told."""

    http: HttpSettings
    host: HostSettings
    """What holds for hosts on HTTP; a pipe says what holds for its own."""
    no_auth: bool = False
    any_port: bool = False
    """Whether another port will do if the one named is taken."""
    idle: float | None = None
    """After how many seconds without a connection and without an open question it ends; none for never."""


class SharedServer:
    """Serves pipes and the human's tools on a Unix socket, and MCP over HTTP beside it.

    Args:
        files: of the state directory, whose lock the caller holds.
        options: what it is told.
        clock: the machine's, if omitted.
        version: of this server.
        say: is given, once, where it listens.
    """

    def __init__(
        self,
        files: StateFiles,
        options: ServerOptions,
        *,
        clock: Clock | None = None,
        version: str = __version__,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.startup = Startup()
        self._files = files
        self._options = options
        self._clock = clock or SystemClock()
        self._version = version
        self._say = say
        self._started_at = datetime.fromtimestamp(self._clock.wall_time(), UTC).isoformat(timespec="seconds")
        self._journal: SqlJournal | None = None
        self._services: Services | None = None
        self._http: HttpServer | None = None
        self._connections: dict[anyio.CancelScope, SocketLines] = {}
        self._pipes = 0
        self._open = 0
        """How many connections and HTTP requests are open."""
        self._quiet_since = self._clock.now()
        self._changed = anyio.Event()
        self._end = anyio.Event()
        self._end_reason = ""
        self._successor = ""

    async def run(self, listener: SocketListener, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until it is told to end, or has been idle.

        Args:
            listener: of the socket; it is closed at the end.
            task_status: told once connections are taken.

        Raises:
            CommandError: the journal, or an address, cannot be used. Those who are connected have been told.
        """
        failure: CommandError | None = None
        accepting = anyio.CancelScope()

        async def accept() -> None:
            with accepting:
                await self.accept(listener, group)

        async with anyio.create_task_group() as group:
            group.start_soon(accept)
            task_status.started()
            try:
                await self._live(accepting)
            except CommandError as error:
                failure = error
                self.end(str(error))
                self.startup.refuse(str(error))
            finally:
                with anyio.CancelScope(shield=True):
                    await self._part(accepting)
        if failure is not None:
            raise failure

    async def accept(self, listener: SocketListener, group: TaskGroup) -> None:
        """Serve whoever connects, each as a task of the group."""
        async with listener:
            await listener.serve(self._serve, group)

    def end(self, reason: str) -> None:
        """Have it end, for a reason that stands in whole sentences. The first one counts."""
        self._end_reason = self._end_reason or reason
        self._end.set()

    def retire(self, version: str) -> bool:
        """Make room for a newer server, of that version, once no question is open. Returns whether that is now."""
        if not is_newer(version, self._version):
            return False
        self._successor = version
        if self._services is None or self._services.questions.newest_open() is None:
            self.end(f"A newer Steersman, version {version}, takes its place.")
            return True
        self._ring()
        return False

    # --- its life ----------------------------------------------------------------------------------------------------

    async def _live(self, accepting: anyio.CancelScope) -> None:
        # A host waits for our tools, which need none of this.
        await to_thread.run_sync(_import_the_rest)
        from steersman.storage.journal import open_journal

        async with open_journal(self._files.directory, clock=self._clock) as self._journal:
            journal = self._journal
            services = make_services([ElicitationProvider()], clock=self._clock, journal=journal)
            self._services = services
            http = self._http = await self._make_http(services)
            self._files.describe(self._describe())
            self.startup.give(services)
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._end_when_idle, services)
                watching.start_soon(self._end_when_replaced, services)
                async with anyio.create_task_group() as serving:
                    await serving.start(http.serve)
                    self._say(f"Steersman listens on {http.url}")
                    try:
                        await self._end.wait()
                    finally:
                        # Also when the journal failed: whoever waits is told.
                        with anyio.CancelScope(shield=True):
                            self.end(journal.refusal or "It was cancelled.")
                            services.withdraw_all()
                            http.end()
                            await self._part(accepting)
                watching.cancel_scope.cancel()

    async def _make_http(self, services: Services) -> HttpServer:
        from steersman.serving.http import HttpServer, ServingError, make_app

        told = self._options.http
        app = make_app(
            services,
            host=told.host,
            port=told.port,
            no_auth=self._options.no_auth,
            allow_hosts=told.allow_hosts,
            defaults=self._options.host,
        )
        app.add_middleware(_Counted, busy=self._busy)
        try:
            server = HttpServer(app, host=told.host, port=told.port)
        except ServingError:
            if not self._options.any_port:
                raise
            server = HttpServer(app, host=told.host, port=0)
        if not self._options.no_auth:
            path = await services.tokens.ensure_first(self._files.directory)
            self._say(f"The bearer token for this machine's own tools is in {path}")
        return server

    async def _end_when_idle(self, services: Services) -> None:
        idle = self._options.idle
        while idle is not None:
            changed, moment = self._changed, self._quiet_since + idle
            if self._open:
                await changed.wait()
            elif self._clock.now() < moment:
                await wait_for(changed, self._clock, moment)
            else:
                answered, asked_at = services.questions.changed(), services.questions.newest_open()
                waits = FORGOTTEN_SECONDS - (self._clock.wall_time() - asked_at) if asked_at is not None else 0.0
                if waits <= 0:
                    self.end("It was idle.")
                    return
                # Whoever asked may be gone by then without a word.
                await wait_for(answered, self._clock, self._clock.now() + min(waits, max(idle, 1.0)))

    async def _end_when_replaced(self, services: Services) -> None:
        while not self._successor:
            await self._changed.wait()
        while (changed := services.questions.changed()) and services.questions.newest_open() is not None:
            await changed.wait()
        self.end(f"A newer Steersman, version {self._successor}, takes its place.")

    # --- its connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def _busy(self) -> Generator[None]:
        self._open += 1
        self._ring()
        try:
            yield
        finally:
            self._open -= 1
            self._quiet_since = self._clock.now()
            self._ring()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _serve(self, stream: SocketStream) -> None:
        try:
            async with stream:
                check_peer(stream.extra(SocketAttribute.raw_socket))
                lines = SocketLines(stream)
                with self._busy(), anyio.CancelScope() as scope:
                    self._connections[scope] = lines
                    try:
                        await self._greet(lines)
                    finally:
                        del self._connections[scope]
                        self._ring()
        except StateDirError as error:
            logger.error("a connection was refused", extra={"reason": str(error)})
        except Exception as fault:  # noqa: BLE001 - one connection's fault is not another's
            logger.error("a connection failed", extra=dict(describe(fault)))

    async def _greet(self, lines: SocketLines) -> None:
        """Exchange hellos, and serve whoever it is. Once the server is ending nobody is: they go to the next one."""
        hello: Mapping[str, object] | None = None
        with anyio.move_on_after(HELLO_SECONDS):
            line = await lines.receive(limit=HELLO_BYTES)
            hello = read_control(line) if line is not None else None
        if hello is None or self._end.is_set():
            return
        with suppress(*GONE):
            try:
                connection = self._connection(hello, lines)
            except SettingsError as error:
                await lines.send_control({"error": f"The server, version {self._version}, refuses: {error}"})
                return
            await lines.send_control({"pid": os.getpid(), "version": self._version})
            self._pipes += (pipes := int(isinstance(connection, PipeConnection)))
            try:
                await connection.serve()
            finally:
                self._pipes -= pipes

    def _connection(self, hello: Mapping[str, object], lines: SocketLines) -> PipeConnection | ControlConnection:
        match hello.get("role"), hello.get("key"):
            case "pipe", str(key):
                return PipeConnection(self.startup, lines, key, host_from_json(hello.get("host")), self.retire)
            case "control", _:
                return ControlConnection(self, lines)
            case role, _:
                raise SettingsError(f"hello: found role {role!a}; allowed is pipe, with a key, or control.")

    async def _part(self, accepting: anyio.CancelScope) -> None:
        """Take leave of everybody who is connected."""
        accepting.cancel()
        if self._connections:
            # Answers to what was withdrawn are on their way.
            await anyio.sleep(FAREWELL_SECONDS)
        for scope, lines in list(self._connections.items()):
            with anyio.move_on_after(FAREWELL_SECONDS), suppress(*GONE):
                await lines.send_control({"end": self._end_reason})
            scope.cancel()
        while self._connections:
            await self._changed.wait()

    # --- what its own tools ask --------------------------------------------------------------------------------------

    async def status(self) -> Mapping[str, Any]:
        services = await self.startup.services()
        agents = services.registry.list(LOCAL_REALM)
        return {
            **self._describe(),
            "log": str(self._files.log),
            "pipes": self._pipes,
            "agents": sum(agent.current is not None for agent in agents),
            "waiting": len(services.human.waiting(LOCAL_REALM)),
        }

    def _describe(self) -> Mapping[str, Any]:
        return {
            "pid": os.getpid(),
            "version": self._version,
            "socket": str(self._files.socket),
            "url": self._http.url if self._http is not None else None,
            "started_at": self._started_at,
        }

    def stop(self) -> None:
        self.end("It was ended by `steersman stop`.")

    async def history(self, agent_id: str | None, limit: int) -> Mapping[str, Any]:
        await self.startup.services()
        assert self._journal is not None
        entries = await self._journal.history(LOCAL_REALM, agent_id, limit=limit)
        return {"events": [entry.as_json() for entry in entries]}

    async def forget(self, older_than: float) -> None:
        await self.startup.services()
        assert self._journal is not None
        await self._journal.forget(older_than)


class _Counted:
    """An ASGI layer that keeps the server from counting as idle while a request is open."""

    def __init__(self, app: ASGIApp, busy: Callable[[], AbstractContextManager[None]]) -> None:
        self._app = app
        self._busy = busy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._busy() if scope["type"] == "http" else nullcontext():
            await self._app(scope, receive, send)


def _import_the_rest() -> None:
    for name in ("steersman.storage.journal", "steersman.serving.http"):
        import_module(name)
