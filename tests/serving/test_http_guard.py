"""What stands between HTTP clients and the SDK: tokens, names, colliding ids, clients that leave."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx2
import pytest
import uvicorn
from anyio.abc import TaskGroup
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import Receive, Scope, Send

from steersman.questions.requests import AskRequest, Card, HandleMaker, Reply
from steersman.questions.types import Answer, Via
from steersman.services import Services, make_services
from steersman.serving.http import ServingError, make_app
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
SECONDS: Final = 5


class SlowHuman:
    """A provider behind which each question waits until the test answers it."""

    def __init__(self) -> None:
        self.asked = 0
        self.withdrawn = 0
        self.requests_ended = 0
        self._changed = anyio.Event()
        self._answer = anyio.Event()

    @property
    def name(self) -> Via:
        return "console"

    def obstacle(self, request: AskRequest) -> str | None:
        return None

    async def ask(self, card: Card, handle: HandleMaker) -> Reply:
        self.asked += 1
        self._tell()
        try:
            await self._answer.wait()
        except anyio.get_cancelled_exc_class():
            self.withdrawn += 1
            self._tell()
            raise
        return [Answer("q1", ("Yes",))]

    def resume(self, card: Card, answer: object) -> Reply:
        raise AssertionError("nothing is suspended")

    def answer_all(self) -> None:
        self._answer.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def request_ended(self) -> None:
        self.requests_ended += 1
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Site:
    """A server on a real socket."""

    services: Services
    human: SlowHuman
    token: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def headers(self, **more: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def site(**options: Any) -> AsyncGenerator[Site]:
    human = SlowHuman()
    services = make_services([human])
    token = await services.tokens.new("test")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = make_app(services, host="127.0.0.1", port=port, **options)

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        human.request_ended()

    server = _Uvicorn(uvicorn.Config(watched, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    with anyio.fail_after(2 * SECONDS):
        async with anyio.create_task_group() as group:

            async def serve() -> None:
                await server.serve(sockets=[listener])

            group.start_soon(serve)
            await server.listening.wait()
            yield Site(services, human, token, port)
            human.answer_all()
            app.state.exchanges.end_streams()
            server.should_exit = True


@asynccontextmanager
async def plain_client(place: Site, **headers: str) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(headers=place.headers(**headers), timeout=SECONDS) as client:
        yield client


async def open_session(place: Site, client: httpx2.AsyncClient) -> str:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    answer = await client.post(place.url, json=request("initialize", 0, params))
    session = answer.headers["mcp-session-id"]
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await client.post(place.url, json=done, headers={"Mcp-Session-Id": session})
    return session


def request(method: str, request_id: int | str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params or {})}


def ask(request_id: int | str, **params: Any) -> dict[str, Any]:
    question = {"id": "q1", "question": f"Go on with {request_id!r}?", "options": [{"label": "Yes"}, {"label": "No"}]}
    return request(
        "tools/call", request_id, {"name": "ask_user_question", "arguments": {"questions": [question]}, **params}
    )


def modern_ask(request_id: int | str) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return ask(request_id, _meta=meta)


MODERN_HEADERS: Final = {
    "Mcp-Protocol-Version": MODERN,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "ask_user_question",
}


def answered(response: httpx2.Response) -> dict[str, Any]:
    """The JSON-RPC message in a response, be it JSON or one event of a stream."""
    if response.headers["content-type"].startswith("application/json"):
        return response.json()
    [data] = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(data.removeprefix("data: "))


async def send_raw(place: Site, body: Mapping[str, Any], headers: Mapping[str, str]) -> anyio.abc.SocketStream:
    """POST over a socket of our own, and leave the answer unread."""
    content = json.dumps(body).encode()
    lines = ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{place.port}", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in {**place.headers(), **headers}.items()]
    stream = await anyio.connect_tcp("127.0.0.1", place.port)
    await stream.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    return stream


# --- clients that leave ---------------------------------------------------------------------------------------------


@requirement("serving:guard")
async def test_a_legacy_client_that_drops_its_call_withdraws_the_question() -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        stream = await send_raw(place, ask(1), {"Mcp-Session-Id": session})
        with anyio.fail_after(SECONDS):
            await place.human.until(lambda: place.human.asked == 1)
            await stream.aclose()
            await place.human.until(lambda: place.human.withdrawn == 1)
        assert place.services.questions.open_cards("local") == []


@requirement("serving:guard")
async def test_a_modern_client_that_drops_its_call_withdraws_the_question() -> None:
    async with site() as place:
        stream = await send_raw(place, modern_ask(1), MODERN_HEADERS)
        with anyio.fail_after(SECONDS):
            await place.human.until(lambda: place.human.asked == 1)
            await stream.aclose()
            await place.human.until(lambda: place.human.withdrawn == 1)
        assert place.services.questions.open_cards("local") == []


@requirement("serving:guard")
async def test_a_dropped_call_leaves_the_other_call_of_its_session_open() -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        with anyio.fail_after(SECONDS):
            async with in_background() as group:
                other = Later(group, client.post, place.url, json=ask(1), headers={"Mcp-Session-Id": session})
                await place.human.until(lambda: place.human.asked == 1)
                stream = await send_raw(place, ask(2), {"Mcp-Session-Id": session})
                await place.human.until(lambda: place.human.asked == 2)
                await stream.aclose()
                await place.human.until(lambda: place.human.withdrawn == 1)
                place.human.answer_all()
            assert answered(other.result)["result"]["structuredContent"]["answers"] == [
                {"id": "q1", "selected": ["Yes"]}
            ]


@requirement("serving:guard")
async def test_the_id_of_a_dropped_call_is_not_taken_again() -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        stream = await send_raw(place, ask(1), {"Mcp-Session-Id": session})
        with anyio.fail_after(SECONDS):
            await place.human.until(lambda: place.human.asked == 1)
            before = place.human.requests_ended
            await stream.aclose()
            await place.human.until(lambda: place.human.requests_ended == before + 1)
            again = await client.post(place.url, json=request("tools/list", 1), headers={"Mcp-Session-Id": session})
        assert (again.status_code, again.json()["error"]["code"]) == (400, -32600)


# --- colliding ids --------------------------------------------------------------------------------------------------


@requirement("serving:guard")
@pytest.mark.parametrize("twin", [7, "7"], ids=["same", "same as text"])
async def test_a_second_request_under_an_open_id_is_refused_and_the_first_goes_on(twin: int | str) -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        with anyio.fail_after(SECONDS):
            async with in_background() as group:
                first = Later(group, client.post, place.url, json=ask(7), headers={"Mcp-Session-Id": session})
                await place.human.until(lambda: place.human.asked == 1)
                second = await client.post(
                    place.url, json=request("tools/list", twin), headers={"Mcp-Session-Id": session}
                )
                place.human.answer_all()
        assert (second.status_code, second.json()["error"]["code"], second.json()["id"]) == (400, -32600, None)
        assert place.human.withdrawn == 0
        message = answered(first.result)
        assert message["id"] == 7
        assert message["result"]["structuredContent"]["answers"] == [{"id": "q1", "selected": ["Yes"]}]


@requirement("serving:guard")
async def test_an_id_is_free_again_once_it_was_answered() -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        place.human.answer_all()
        for _ in range(2):
            response = await client.post(place.url, json=ask(1), headers={"Mcp-Session-Id": session})
            assert answered(response)["result"]["structuredContent"]["via"] == "console"


@requirement("serving:guard")
async def test_two_sessions_may_use_one_id_at_a_time() -> None:
    async with site() as place, plain_client(place) as client:
        sessions = [await open_session(place, client), await open_session(place, client)]
        with anyio.fail_after(SECONDS):
            async with in_background() as group:
                calls = [
                    Later(group, client.post, place.url, json=ask(1), headers={"Mcp-Session-Id": it}) for it in sessions
                ]
                await place.human.until(lambda: place.human.asked == 2)
                place.human.answer_all()
        assert [call.result.status_code for call in calls] == [200, 200]


@requirement("serving:guard")
async def test_modern_requests_may_share_an_id() -> None:
    async with site() as place, plain_client(place) as client:
        headers = {**MODERN_HEADERS, "Mcp-Session-Id": "not a session"}
        with anyio.fail_after(SECONDS):
            async with in_background() as group:
                calls = [Later(group, client.post, place.url, json=modern_ask(1), headers=headers) for _ in range(2)]
                await place.human.until(lambda: place.human.asked == 2)
                place.human.answer_all()
        assert [answered(call.result)["result"]["structuredContent"]["via"] for call in calls] == ["console"] * 2


@requirement("serving:guard")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b'{"id": {}, "method": 1}', b"\xff"])
async def test_what_is_no_request_gets_an_orderly_answer(body: bytes) -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        response = await client.post(place.url, content=body, headers={"Mcp-Session-Id": session})
        assert response.status_code == 400
        listed = await client.post(place.url, json=request("tools/list", 1), headers={"Mcp-Session-Id": session})
        assert len(answered(listed)["result"]["tools"]) == 3


@requirement("serving:guard")
async def test_a_body_over_four_mebibytes_is_refused() -> None:
    async with site() as place, plain_client(place) as client:
        session = await open_session(place, client)
        body = json.dumps(request("tools/list", 1, {"cursor": "x" * (4 * 1024 * 1024)})).encode()
        response = await client.post(place.url, content=body, headers={"Mcp-Session-Id": session})
        assert response.status_code == 413

        async def in_pieces() -> AsyncGenerator[bytes]:
            for at in range(0, len(body), 65536):
                yield body[at : at + 65536]

        response = await client.post(place.url, content=in_pieces(), headers={"Mcp-Session-Id": session})
        assert response.status_code == 413


# --- who may come in ------------------------------------------------------------------------------------------------


@requirement("serving:guard")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_with_a_token_is_served_in_both_eras(mode: str) -> None:
    async with (
        site() as place,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {place.token}"}) as http,
        Client(streamable_http_client(place.url, http_client=http), mode=mode, cache=None) as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "ask_user_question",
            "exit_plan_mode",
            "steer_subagent",
        ]


@requirement("serving:guard")
async def test_a_request_without_a_token_or_with_a_wrong_one_is_401() -> None:
    async with site() as place, plain_client(place) as client:
        for value in ("", "Bearer", "Bearer wrong", f"Basic {place.token}"):
            response = await client.post(place.url, json=request("tools/list", 1), headers={"Authorization": value})
            assert response.status_code == 401


@requirement("serving:guard")
async def test_a_token_works_from_the_moment_it_is_made_until_it_is_revoked() -> None:
    async with site() as place, plain_client(place) as client:
        tokens = place.services.tokens
        headers = {"Authorization": f"Bearer {await tokens.new('later')}", **MODERN_HEADERS}
        place.human.answer_all()
        assert (await client.post(place.url, json=modern_ask(1), headers=headers)).status_code == 200
        await tokens.revoke("later")
        assert (await client.post(place.url, json=modern_ask(2), headers=headers)).status_code == 401


@requirement("serving:guard")
async def test_two_tokens_are_two_agents_and_two_subjects_two_realms() -> None:
    async with site() as place, plain_client(place) as client:
        with anyio.fail_after(SECONDS):
            async with in_background() as group:
                tokens = place.services.tokens
                for token in (place.token, await tokens.new("other"), await tokens.new("guest", "guest")):
                    headers = {"Authorization": f"Bearer {token}", **MODERN_HEADERS}
                    Later(group, client.post, place.url, json=modern_ask(1), headers=headers)
                await place.human.until(lambda: place.human.asked == 3)
                assert len(place.services.registry.roots("local")) == 2
                assert len(place.services.registry.roots("guest")) == 1
                place.human.answer_all()


@requirement("serving:guard")
async def test_a_foreign_host_or_origin_is_refused() -> None:
    async with site(allow_hosts=["steersman.example"]) as place, plain_client(place) as client:
        for headers, status in [
            ({"Host": "attacker.example"}, 421),
            ({"Host": f"attacker.example:{place.port}"}, 421),
            ({"Host": "steersman.example.attacker.example"}, 421),
            ({"Origin": "http://attacker.example"}, 403),
            ({"Host": "steersman.example"}, 200),
            ({"Host": f"localhost:{place.port}", "Origin": f"http://localhost:{place.port}"}, 200),
            ({"Host": "steersman.example", "Origin": "https://steersman.example"}, 200),
        ]:
            place.human.answer_all()
            response = await client.post(place.url, json=modern_ask(1), headers={**MODERN_HEADERS, **headers})
            assert (headers, response.status_code) == (headers, status)


@requirement("serving:guard")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
async def test_all_addresses_need_the_names_that_clients_use(host: str) -> None:
    with pytest.raises(ServingError, match="--allow-host"):
        make_app(make_services([]), host=host, port=1)
    make_app(make_services([]), host=host, port=1, allow_hosts=["box"])


@requirement("serving:guard")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "box", ""])
async def test_without_tokens_only_this_machine_may_connect(host: str) -> None:
    with pytest.raises(ServingError, match="loopback"):
        make_app(make_services([]), no_auth=True, host=host, port=1, allow_hosts=["box"])
    for loopback in ("127.0.0.1", "localhost", "::1"):
        make_app(make_services([]), no_auth=True, host=loopback, port=1)


# --- waiting --------------------------------------------------------------------------------------------------------


class Later:
    """A call that runs in a task group; its result is there once the group has ended."""

    def __init__(self, group: TaskGroup, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.result: Any = None

        async def run() -> None:
            self.result = await call(*arguments, **options)

        group.start_soon(run)


@asynccontextmanager
async def in_background() -> AsyncGenerator[TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group
