"""The servers that are timed, each in a process of its own: `python -m tests.benchmarks.servers KIND WIRE`.

KIND is `steersman` or `bare`: the SDK's low-level server with one tool that does nothing. Over HTTP both are served by
the same uvicorn set-up, on a port that is printed; WIRE is `stdio`, `http`, or `http-token`, with a bearer token.
"""

from __future__ import annotations

import socket
import sys
from typing import Any, Final

import anyio
import uvicorn
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from steersman.contract.files import load
from steersman.providers.elicitation import ElicitationProvider
from steersman.server import make_server, stream_lifespan
from steersman.services import make_services
from steersman.serving.http import make_app

HOST: Final = "127.0.0.1"
TOOL: Final = "ask_user_question"


class _OneToken(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="bench", scopes=[], subject="local") if token == "bench" else None


def _bare() -> Server[Any]:
    schema = load(TOOL)["inputSchema"]
    tool = Tool.model_validate({"name": TOOL, "inputSchema": schema})

    async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="ok")])

    return Server(
        "bare",
        version="0",
        get_tool_input_schema=lambda name: schema if name == TOOL else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _app(kind: str, port: int, with_token: bool) -> tuple[Starlette, str]:
    if kind == "steersman":
        services = make_services([ElicitationProvider()])
        token = await services.tokens.new("bench") if with_token else ""
        return make_app(services, host=HOST, port=port, no_auth=not with_token), token
    auth = AuthSettings(issuer_url=AnyHttpUrl("http://localhost"), resource_server_url=None) if with_token else None
    verifier = _OneToken() if with_token else None
    app = _bare().streamable_http_app(streamable_http_path="/mcp", host=HOST, auth=auth, token_verifier=verifier)
    return app, "bench"


async def _serve_http(kind: str, with_token: bool) -> None:
    # Made with IPPROTO_TCP, as asyncio turns Nagle's algorithm off only on those.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind((HOST, 0))
    port = listener.getsockname()[1]
    app, token = await _app(kind, port, with_token)
    config = uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False, server_header=False)
    sys.stdout.write(f"{port} {token}\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[listener])


async def _serve_stdio(kind: str) -> None:
    if kind == "steersman":
        services = make_services([ElicitationProvider()])
        server: Server[Any] = make_server(stream_lifespan(services, realm="local"))
    else:
        server = _bare()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    _, kind, wire = sys.argv
    if wire == "stdio":
        anyio.run(_serve_stdio, kind)
    else:
        anyio.run(_serve_http, kind, wire == "http-token")
