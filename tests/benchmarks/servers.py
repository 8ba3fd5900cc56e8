"""The servers that are timed, each in a process of its own: `python -m tests.benchmarks.servers KIND WIRE`.

KIND is `steersman`, `durable`, which is the same with a journal on the disk, or `bare`: the SDK's low-level server with
one tool that does nothing. Over HTTP all are served by the same uvicorn set-up, on a port that is printed; WIRE is
`stdio`, `http`, or `http-token`, with a bearer token.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import uvicorn
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from steersman.providers.elicitation import ElicitationProvider
from steersman.server import make_server, stream_lifespan
from steersman.services import Services, make_services
from steersman.serving.http import make_app
from steersman.storage.journal import open_journal
from tests.benchmarks.bare import bare_server, serve_stdio

HOST: Final = "127.0.0.1"


class _OneToken(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="bench", scopes=[], subject="local") if token == "bench" else None


@asynccontextmanager
async def _services(kind: str) -> AsyncGenerator[Services]:
    if kind == "steersman":
        yield make_services([ElicitationProvider()])
        return
    with TemporaryDirectory() as state_dir:
        async with open_journal(Path(state_dir)) as journal:
            yield make_services([ElicitationProvider()], journal=journal)


async def _app(stack: AsyncExitStack, kind: str, port: int, with_token: bool) -> tuple[Starlette, str]:
    if kind != "bare":
        services = await stack.enter_async_context(_services(kind))
        token = await services.tokens.new("bench") if with_token else ""
        return make_app(services, host=HOST, port=port, no_auth=not with_token), token
    auth = AuthSettings(issuer_url=AnyHttpUrl("http://localhost"), resource_server_url=None) if with_token else None
    verifier = _OneToken() if with_token else None
    app = bare_server().streamable_http_app(streamable_http_path="/mcp", host=HOST, auth=auth, token_verifier=verifier)
    return app, "bench"


async def _serve_http(kind: str, with_token: bool) -> None:
    # Made with IPPROTO_TCP, as asyncio turns Nagle's algorithm off only on those.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind((HOST, 0))
    port = listener.getsockname()[1]
    async with AsyncExitStack() as stack:
        app, token = await _app(stack, kind, port, with_token)
        config = uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False, server_header=False)
        sys.stdout.write(f"{port} {token}\n")
        sys.stdout.flush()
        await uvicorn.Server(config).serve(sockets=[listener])


async def _serve_stdio(kind: str) -> None:
    if kind == "bare":
        await serve_stdio(bare_server())
        return
    async with _services(kind) as services:
        await serve_stdio(make_server(stream_lifespan(services, realm="local")))


if __name__ == "__main__":
    _, kind, wire = sys.argv
    if wire == "stdio":
        anyio.run(_serve_stdio, kind)
    else:
        anyio.run(_serve_http, kind, wire == "http-token")
