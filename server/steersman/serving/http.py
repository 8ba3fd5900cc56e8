"""Serving MCP over streamable HTTP, at `/mcp`."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Final, cast

import anyio
import uvicorn
from anyio.abc import TaskStatus
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from steersman.agents import TOKEN_KEY
from steersman.errors import HostError
from steersman.registry import Binding
from steersman.server import Bindings, Context, make_server
from steersman.services import Services
from steersman.serving.exchanges import Exchanges
from steersman.serving.signals import end_on_signal
from steersman.settings import DEFAULT_HOST_SETTINGS, CommandError, HostSettings, is_loopback
from steersman.tokens import LOCAL_REALM

PATH: Final = "/mcp"
CLOSING_SECONDS: Final = 1
"""How long the answers to withdrawn questions are given to go out, and connections to end."""

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


class ServingError(CommandError):
    """The server cannot listen as asked. The message says why and which option helps."""


def make_app(
    services: Services,
    *,
    host: str,
    port: int,
    no_auth: bool = False,
    allow_hosts: Sequence[str] = (),
    defaults: HostSettings | None = None,
) -> Starlette:
    """The ASGI application that serves MCP at `/mcp`.

    Args:
        services: what stands behind the tools; their tokens may connect.
        host: the address it will listen on.
        port: the port it will listen on; 0 if not known yet.
        no_auth: let everybody in, as the local user.
        allow_hosts: other names, with or without a port, that clients may call it by.
        defaults: what holds for hosts; the profile only with `no_auth`, because each token has its own.

    Raises:
        ServingError: `host` stands for every address of the machine, whose names nobody knows, and `allow_hosts` is
            empty; or everybody would be let in from other machines.
    """
    if no_auth and not is_loopback(host):
        raise ServingError(
            f"Without tokens only this machine may connect: found host {host!a}, allowed is a loopback one."
        )
    bindings = _Bindings(services, no_auth, defaults or DEFAULT_HOST_SETTINGS)

    @asynccontextmanager
    async def lifespan(_: Server[Bindings]) -> AsyncGenerator[Bindings]:
        yield bindings

    server = make_server(lifespan)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=_transport_security(host, port, allow_hosts),
        # The issuer is never shown: tokens are made by `steersman token new`, not by OAuth.
        auth=AuthSettings(issuer_url=AnyHttpUrl("http://localhost"), resource_server_url=None) if not no_auth else None,
        token_verifier=bindings if not no_auth else None,
    )
    manager = server.session_manager
    exchanges = Exchanges(manager.asgi_app)
    manager.asgi_app = RequestBodyLimitMiddleware(exchanges, manager.max_request_body_size)
    app.state.exchanges = exchanges
    return app


class HttpServer:
    """Serves an application of `make_app` on one address.

    Args:
        app: what `make_app` made for the same host and port.
        host: an address or name of this machine.
        port: 0 for any free one.

    Raises:
        ServingError: the address cannot be listened on.
    """

    def __init__(self, app: Starlette, *, host: str, port: int) -> None:
        _allow_many_connections()
        self._exchanges = cast("Exchanges", app.state.exchanges)
        listener = _listen(host, port)
        self.url: Final = f"http://{_bracketed(host)}:{listener.getsockname()[1]}{PATH}"
        """Where MCP is."""
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )
        self._server = _Uvicorn(config, listener)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `end`; it has started once it answers."""
        await self._server.serve_until_told(task_status)

    def end(self) -> None:
        """Take no more connections, and let open requests end for a second. Open questions are withdrawn before."""
        self._exchanges.end_streams()
        self._server.should_exit = True


async def serve_http(server: HttpServer, services: Services) -> None:
    """Serve until SIGINT or SIGTERM, and say once on stderr where.

    On the first signal every open question is withdrawn, and its call answered with `ASK_ABORTED`; on a second one the
    process ends at once.
    """

    def end() -> None:
        services.withdraw_all()
        server.end()

    async with anyio.create_task_group() as group:
        await group.start(end_on_signal, end)
        async with anyio.create_task_group() as serving:
            await serving.start(server.serve)
            sys.stderr.write(f"Steersman listens on {server.url}\n")
            sys.stderr.flush()
        group.cancel_scope.cancel()


class _Bindings(TokenVerifier):
    """What requests come over: one binding for each token, or one for everybody where no token is asked for."""

    def __init__(self, services: Services, no_auth: bool, defaults: HostSettings) -> None:
        self._services = services
        self._no_auth = no_auth
        self._defaults = defaults
        self._by_token: dict[str, Binding] = {}

    async def verify_token(self, token: str) -> AccessToken | None:
        found = self._services.tokens.find(token)
        if found is None:
            return None
        if found.id not in self._by_token:
            host = replace(self._defaults, profile=found.profile)
            self._by_token[found.id] = self._connect(found.subject, found.id, found.label, host)
        return AccessToken(token=token, client_id=found.id, scopes=[], subject=found.subject)

    async def of(self, ctx: Context) -> tuple[Services, Binding]:
        if self._no_auth:
            if "" not in self._by_token:
                self._by_token[""] = self._connect(LOCAL_REALM, "", "the local user's agent", self._defaults)
            return self._services, self._by_token[""]
        access = get_access_token()
        binding = self._by_token.get(access.client_id) if access is not None else None
        if binding is None:
            raise HostError("CALLER_NOT_LIVE")
        return self._services, binding

    def _connect(self, realm: str, token_id: str, label: str, host: HostSettings) -> Binding:
        return self._services.registry.connect(realm, TOKEN_KEY + token_id, label=label, leased=True, host=host)


class _Uvicorn(uvicorn.Server):
    """Leaves the signals to us, and tells when it has started."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener
        self._task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED

    async def serve_until_told(self, task_status: TaskStatus[None]) -> None:
        self._task_status = task_status
        await self.serve(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._task_status.started()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _transport_security(host: str, port: int, allow_hosts: Sequence[str]) -> TransportSecuritySettings:
    """Which Host and Origin headers are let through: of a page that a browser was lured to, none is."""
    hosts: list[str] = []
    for name in allow_hosts:
        hosts += [name] if _has_port(name) else [name, f"{name}:*"]
    if _is_unspecified(host):
        if not hosts:
            raise ServingError(
                f"Host {host!a} listens on every address of this machine, and requests are checked for the name they "
                "were sent to. Give each name or address that clients will use by --allow-host NAME."
            )
        hosts += [f"{name}:*" for name in _LOOPBACK_NAMES]
    elif is_loopback(host):
        hosts += [f"{name}:*" for name in dict.fromkeys([*_LOOPBACK_NAMES, _bracketed(host)])]
    else:
        hosts.append(f"{_bracketed(host)}:{port or '*'}")
    origins = [f"http://{each}" for each in hosts] + [f"https://{each}" for each in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def _allow_many_connections() -> None:
    """Let the process have as many files open as it may: each agent that waits for work is a connection or two."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    It is made with `IPPROTO_TCP`: asyncio turns Nagle's algorithm off only on those, and with it each call takes 45 ms
    in place of 2.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ServingError(f"Host {host!a} is no address of this machine ({error.strerror}). Change --host.") from None
    # A name such as localhost stands for both families; clients try IPv4 at the latest.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ServingError(
            f"Cannot listen on port {port} of {host}: {error.strerror}. Choose another port by --port, 0 for any free "
            "one, or another address by --host."
        ) from None
    return listener


def _is_unspecified(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]") and (name.count(":") == 1 or "]:" in name)
