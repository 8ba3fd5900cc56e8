"""What the SDK leaves undone for HTTP requests: clients that leave, ids that collide, streams that outlive us."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import anyio
import pydantic_core
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steersman.json_values import is_object
from steersman.tool_calls import Departure

MAX_ABANDONED: Final = 10_000
"""How many ids of requests that their clients left are remembered, the newest."""

_RequestKey = tuple[str, str, str]
"""Token id, legacy session, JSON-RPC id: as text, because the SDK keeps 1 and "1" apart nowhere."""


class Exchanges:
    """An ASGI layer around the SDK's MCP endpoint, inside its authentication and its limit on bodies.

    - On legacy HTTP the SDK keeps a call running after its client dropped the POST: a `Departure` in the request's
      scope ends it.
    - Two requests in flight with one id in one legacy session cross their answers in the SDK: the second gets 400. So
      does a later one under the id of a call that its client left, because the answer to that call may still come.
    - GET streams never end by themselves: `end_streams` does it, so that the process can.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_flight: set[_RequestKey] = set()
        self._abandoned: OrderedDict[_RequestKey, None] = OrderedDict()
        self._streams: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "GET":
            await self._serve_stream(scope, receive, send)
        else:
            await self._serve_message(scope, receive, send)

    def end_streams(self) -> None:
        """End the GET streams there are, in good order."""
        for stream in self._streams:
            stream.cancel()

    async def _serve_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        unfinished = False

        async def watched_send(message: Message) -> None:
            nonlocal unfinished
            await send(message)
            unfinished = message["type"] == "http.response.start" or message.get("more_body", False)

        with anyio.CancelScope() as stream:
            self._streams.add(stream)
            try:
                await self._app(scope, receive, watched_send)
            finally:
                self._streams.discard(stream)
        if unfinished and stream.cancelled_caught:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        key = _request_key(scope, first)
        if key is None:
            await self._app(scope, _watched(_Exchange(), scope, first, receive), send)
        elif key in self._in_flight or key in self._abandoned:
            await _refusal(key)(scope, receive, send)
        else:
            exchange = _Exchange()
            self._in_flight.add(key)
            try:
                await self._app(scope, _watched(exchange, scope, first, receive), send)
            finally:
                self._in_flight.discard(key)
                if exchange.abandoned:
                    self._abandon(key)

    def _abandon(self, key: _RequestKey) -> None:
        self._abandoned[key] = None
        if len(self._abandoned) > MAX_ABANDONED:
            self._abandoned.popitem(last=False)


class _Exchange(Departure):
    """The departure of one request, which remembers whether a call was cut short by it."""

    def __init__(self) -> None:
        super().__init__()
        self.abandoned = False

    def client_left(self) -> None:
        self.abandoned = self.abandoned or bool(self._scopes)
        super().client_left()


def _watched(exchange: _Exchange, scope: Scope, first: Message, receive: Receive) -> Receive:
    """A `receive` that hands `first` out again, and tells the exchange when the client is gone."""
    scope[Departure.KEY] = exchange
    replayed = False

    async def watched() -> Message:
        nonlocal replayed
        message = await receive() if replayed else first
        replayed = True
        if message["type"] == "http.disconnect":
            exchange.client_left()
        return message

    return watched


def _request_key(scope: Scope, first: Message) -> _RequestKey | None:
    """What names a request of a legacy session; none for anything else, which the SDK is left to judge."""
    headers = Headers(scope=scope)
    session = headers.get(MCP_SESSION_ID_HEADER)
    revision = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    modern = revision is not None and revision not in HANDSHAKE_PROTOCOL_VERSIONS
    if session is None or modern or first["type"] != "http.request" or first.get("more_body", False):
        return None
    try:
        message: object = pydantic_core.from_json(first.get("body", b""))
    except ValueError:
        return None
    if not is_object(message) or "method" not in message:
        return None
    request_id = message.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    token = get_access_token()
    return (token.client_id if token is not None else "", session, str(request_id))


def _refusal(key: _RequestKey) -> Response:
    text = (
        f"Request id {key[2][:60]!a} is in use in this session, or was used by a call that its client left. "
        "Give every request of a session an id of its own."
    )
    # No id: it would name the first request too, which goes on.
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=text))
    return Response(error.model_dump_json(exclude_unset=True), status_code=400, media_type="application/json")
