"""`connect`: one way to a server in memory, over pipes and over HTTP, that lets agents exit on every way out."""

from __future__ import annotations

import inspect
import re
import socket
import struct
import sys
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.abc import TaskStatus
from mcp import StdioServerParameters
from mcp_types import ElicitResult

import steersman_client
from steersman.server import make_server, stream_lifespan
from steersman.services import make_services
from steersman_client import ConnectError, Host, Step, TurnLoop, connect
from steersman_client import host as host_module
from tests.requirements import requirement
from tests.world import Connect, World, code, over, over_http

pytestmark = pytest.mark.anyio

ASK = {"questions": [{"id": "q", "question": "Which?"}]}


def to(world: World, **options: Any) -> AbstractAsyncContextManager[Host]:
    """Connect to a server under test, in memory or over HTTP."""
    if world.transport.wire == "http":
        return connect(world.url, token=world.default_token, **options)
    return connect(make_server(stream_lifespan(world.services, realm="local")), **options)


async def decline(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="decline")


@requirement("connect:ways")
@over("memory", "http")
async def test_the_same_host_runs_in_memory_and_over_http(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, to(world, elicitation=decline) as host:
            await talk(host)


@requirement("connect:ways")
async def test_the_same_host_runs_over_the_pipes_of_a_server_that_it_starts(tmp_path: Path) -> None:
    command = ["-m", "steersman", "--standalone", "--state-dir", str(tmp_path)]
    with anyio.fail_after(20):
        async with connect(StdioServerParameters(command=sys.executable, args=command), elicitation=decline) as host:
            await talk(host)


async def talk(host: Host) -> None:
    """What every way must carry: a question, a refusal, and a steer that is read."""
    transcript: list[str] = []

    async def step(step: Step) -> bool:
        transcript.extend(message.text for message in step.messages)
        return False

    async with host.agent(label="main") as main, host.agent(owner=main, label="helper") as helper:
        declined = await main.call_tool("ask_user_question", ASK)
        refused = await helper.call_tool("ask_user_question", ASK)
        assert [code(result) for result in (declined, refused)] == ["ASK_DECLINED", "DELEGATED_CALLER"]
        await main.send(helper.id, "Look here.")
        await TurnLoop(helper, step).drain()
    assert transcript == ["Look here."]
    assert {agent["status"] for agent in await host.agents()} == {"stored"}


@requirement("connect:ends")
@over("memory", "http")
async def test_agents_exit_though_their_host_is_cancelled_from_outside(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            waits = anyio.Event()

            async def step(step: Step) -> bool:
                waits.set()
                await anyio.sleep_forever()
                return False

            async def run() -> None:
                async with to(world) as host, host.agent(agent_id="main") as main:
                    async with host.agent(agent_id="helper", owner=main, mode="one-shot") as helper:
                        await TurnLoop(helper, step).turn()

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await waits.wait()
                group.cancel_scope.cancel()
            async with to(world) as host:
                [main] = await host.agents()
            assert (main["status"], main["subagents"][0]["status"]) == ("stored", "finished")


@requirement("connect:ends")
@over("memory", "http")
async def test_what_a_block_raises_comes_out_as_it_is(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            with pytest.raises(RuntimeError, match="plain"):
                await fail_in_a_block(world)
            async with to(world) as host:
                assert [agent["status"] for agent in await host.agents()] == ["stored"]


async def fail_in_a_block(world: World) -> None:
    async with to(world) as host, host.agent():
        raise RuntimeError("plain")


@requirement("connect:ends")
async def test_a_command_that_is_no_server_fails_and_one_that_says_nothing_can_be_cancelled() -> None:
    with anyio.fail_after(20):
        with pytest.raises(ConnectError, match=r"Cannot connect to .* -c pass: MCPError: Connection closed"):
            await enter(StdioServerParameters(command=sys.executable, args=["-c", "pass"]))
        with pytest.raises(ConnectError, match="Cannot connect to no-such-command: FileNotFoundError: "):
            await enter(StdioServerParameters(command="no-such-command"))
        silent = StdioServerParameters(command=sys.executable, args=["-c", "import sys; sys.stdin.read()"])
        with anyio.move_on_after(0.1) as waited:
            await enter(silent)
        assert waited.cancelled_caught


@requirement("connect:ends")
@over_http
async def test_a_wrong_address_or_token_says_so(connect: Connect) -> None:
    with anyio.fail_after(10):
        async with connect() as world:
            with pytest.raises(ConnectError, match=r"Cannot connect to http://127.0.0.1:\d+/mcp: .*401"):
                await enter(world.url, token="wrong")
            with pytest.raises(ConnectError, match=r"Cannot connect to http://127.0.0.1:1/mcp: "):
                await enter("http://127.0.0.1:1/mcp")


@requirement("connect:ends")
async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_CONNECT_SECONDS", 0.1)
    silent = StdioServerParameters(command=sys.executable, args=["-c", "import sys; sys.stdin.read()"])
    with anyio.fail_after(20):
        with pytest.raises(ConnectError, match="nothing came back within"):
            await enter(silent)


@requirement("connect:ends")
@over("memory", "http")
async def test_the_exit_of_a_program_comes_out_as_it_is(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            with pytest.raises(SystemExit) as left:
                async with to(world) as host, host.agent() as agent, agent.attended():
                    sys.exit(3)
            assert left.value.code == 3


class Proxy:
    """A TCP proxy that cuts its connections on demand."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[anyio.abc.SocketStream] = []
        self.port = 0

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        task_status.started()
        async with listener:
            await listener.serve(self._pass_on)

    def cut(self) -> None:
        for stream in self._open:
            # With no time to linger a reset goes out in place of an end.
            stream.extra(anyio.abc.SocketAttribute.raw_socket).setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            stream.extra(anyio.abc.SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)

    async def _pass_on(self, client: anyio.abc.SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", self._target) as server:
            self._open.append(client)
            async with anyio.create_task_group() as group:
                group.start_soon(self._copy, client, server, group.cancel_scope)
                group.start_soon(self._copy, server, client, group.cancel_scope)
            self._open.remove(client)

    async def _copy(self, source: Any, target: Any, scope: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for data in source:
                await target.send(data)
        scope.cancel()


@requirement("connect:cut")
@over_http
async def test_connections_that_are_cut_lose_nothing_but_a_moment(connect: Connect) -> None:
    with anyio.fail_after(15):
        async with connect() as world, anyio.create_task_group() as group:
            proxy = Proxy(world.port)
            await group.start(proxy.serve)
            transcript: list[str] = []
            read = anyio.Event()

            async def step(step: Step) -> bool:
                transcript.extend(message.text for message in step.messages)
                read.set()
                return False

            url = f"http://127.0.0.1:{proxy.port}/mcp"
            async with to(world) as direct, connect_through(url, world) as host:
                parent = await direct.enter()
                async with host.agent(owner=parent, agent_id="child") as child, anyio.create_task_group() as loops:
                    loops.start_soon(TurnLoop(child, step).run)
                    for number in range(3):
                        read = anyio.Event()
                        await anyio.wait_all_tasks_blocked()
                        proxy.cut()
                        await parent.send("child", f"message {number}")
                        await read.wait()
                    loops.cancel_scope.cancel()
                assert transcript == ["message 0", "message 1", "message 2"]
                [shown] = await direct.agents()
                assert shown["subagents"][0]["status"] == "stored"
            group.cancel_scope.cancel()


def connect_through(url: str, world: World) -> AbstractAsyncContextManager[Host]:
    return connect(url, token=world.default_token)


async def enter(target: Any, **options: Any) -> None:
    async with connect(target, **options):
        pass


@requirement("connect:many")
@over_http
async def test_more_agents_wait_at_once_than_an_http_client_has_connections_by_default(connect: Connect) -> None:
    with anyio.fail_after(15):
        async with connect() as world, to(world) as host, anyio.create_task_group() as group:
            agents = [await host.enter() for _ in range(110)]
            for agent in agents:
                group.start_soon(lambda agent=agent: agent.next(turn=0, at="idle", after=0, wait=60))
            await world.clock.until_sleepers(110)
            assert len(await host.agents()) == 110
            group.cancel_scope.cancel()


@requirement("docs:run")
@pytest.mark.parametrize("name", ["connect", "Agent", "TurnLoop"])
async def test_the_examples_in_the_docstrings_run(name: str) -> None:
    documentation = inspect.getdoc(getattr(steersman_client, name)) or ""
    [code] = re.findall(r"```python\n(.*?)```", documentation, re.DOTALL)
    services = make_services([])
    namespace: dict[str, Any] = {}
    exec(compile(inspect.cleandoc(code), name, "exec"), namespace)
    with anyio.fail_after(5):
        await namespace["main"](make_server(stream_lifespan(services, realm="local")))
    assert [services.registry.status(agent) for agent in services.registry.list("local")]
