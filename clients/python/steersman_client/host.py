"""A host: a program that runs agents, and its connection to a Steersman server."""

from __future__ import annotations

import secrets
import shlex
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, Request, Result

from steersman_client.agent import Agent, Mode
from steersman_client.errors import ConnectError, HostMethodError, check_text

_EXIT_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 30.0
_HOST_ERROR: Final = 4001
_LOST: Final = (REQUEST_TIMEOUT, CONNECTION_CLOSED)
_IDEMPOTENCY_KEY: Final = "steersman/idempotencyKey"


class _AnyResult(Result, extra="allow"):
    pass


class Host:
    """A program that runs agents, over one connection to a Steersman server. `connect` makes the connection, too.

    Args:
        client: a connected client of the server.
        timeout: seconds after which a reply counts as lost.
        retry_delays: seconds before each repetition of a call whose reply was lost; after the last one it fails.
    """

    def __init__(
        self, client: Client, *, timeout: float = 30.0, retry_delays: Sequence[float] = (0, 0.5, 2, 5)
    ) -> None:
        self.client = client
        self._timeout = timeout
        self._retry_delays = retry_delays
        self.entries: Counter[str] = Counter()
        """How often each agent was entered over this connection."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        wait: float = 0,
        key: str | None = None,
        repeat: bool = False,
    ) -> dict[str, Any]:
        """Call a host method by name.

        Args:
            method: its whole name.
            params: its parameters, without `_meta`.
            wait: seconds that the method itself may take by what `params` say.
            key: makes repetitions one call, for methods that do something each time.
            repeat: call again if the reply was lost.

        Raises:
            HostMethodError: the server refused it.
            MCPError: the parameters have a wrong shape (-32602), or the reply or the connection is lost.
        """
        check_text(params)
        meta = {"_meta": {_IDEMPOTENCY_KEY: key}} if key is not None else {}
        request = Request[dict[str, Any], str](method=method, params={**params, **meta})
        for delay in [*(self._retry_delays if repeat else ()), None]:
            try:
                result = await self.client.session.send_request(
                    request, _AnyResult, request_read_timeout_seconds=self._timeout + wait
                )
            except MCPError as error:
                if error.code == _HOST_ERROR:
                    raise HostMethodError(error.data) from None
                if error.code not in _LOST or delay is None:
                    raise
                await anyio.sleep(delay)
            else:
                # The modern era adds a word of its own to every result.
                return {name: value for name, value in (result.model_extra or {}).items() if name != "resultType"}
        raise AssertionError("the last attempt returns or raises")

    async def enter(
        self,
        *,
        agent_id: str | None = None,
        owner: Agent | None = None,
        label: str | None = None,
        mode: Mode | None = None,
        resume_key: str | None = None,
        supersede: bool = False,
        plan_mode: bool | None = None,
    ) -> Agent:
        """Make an agent live.

        Args:
            agent_id: a known or new id; a new random one if omitted.
            owner: the live agent that owns it; a root if omitted.
            label: what people and models call it.
            mode: `one-shot` agents are not entered again once they ended; `continuable` if omitted.
            resume_key: for a known agent the key of its first entry; for a new one a key of your own making.
            supersede: replace the activation that is live under this id.
            plan_mode: set plan mode on entry; left as it was if omitted.

        Raises:
            HostMethodError: `CALLER_NOT_LIVE` (the owner), `RESUME_KEY_REQUIRED`, `AGENT_LIVE`, `AGENT_FINISHED`,
                `INVALID_ARGUMENTS`.
        """
        if agent_id is None:
            # Names of our own making, so that a repetition after a lost reply enters the same agent.
            agent_id = f"agent-{secrets.token_hex(6)}"
        if resume_key is None:
            # Whom this key enters, this very call has entered before.
            resume_key, supersede = secrets.token_urlsafe(32), True
        given = {
            "id": agent_id,
            "resume_key": resume_key,
            "owner": owner.credential if owner is not None else None,
            "label": label,
            "mode": mode,
            "supersede": supersede or None,
            "plan_mode": plan_mode,
        }
        params = {name: value for name, value in given.items() if value is not None}
        entered = await self.request("steersman/agents/enter", params, repeat=True)
        self.entries[entered["agent_id"]] += 1
        return Agent(self, entered, owner)

    @asynccontextmanager
    async def agent(
        self,
        *,
        agent_id: str | None = None,
        owner: Agent | None = None,
        label: str | None = None,
        mode: Mode | None = None,
        resume_key: str | None = None,
        supersede: bool = False,
        plan_mode: bool | None = None,
    ) -> AsyncGenerator[Agent]:
        """Enter an agent for a block: it lives as long as the block, and exits on every way out.

        It exits as completed, as failed by an exception, or as aborted by a cancellation. If it has a lease, that is
        kept during the block.

        Args and errors: as `enter`.
        """
        agent = await self.enter(
            agent_id=agent_id,
            owner=owner,
            label=label,
            mode=mode,
            resume_key=resume_key,
            supersede=supersede,
            plan_mode=plan_mode,
        )
        try:
            async with AsyncExitStack() as stack:
                if agent.lease_seconds:
                    await stack.enter_async_context(agent.attended())
                yield agent
        except BaseException as reason:
            # Why the block ended counts, not that the server is out of reach: there the lease will run out.
            with anyio.move_on_after(_EXIT_SECONDS, shield=True), suppress(MCPError):
                await agent.exit("failed" if isinstance(reason, Exception) else "aborted")
            raise
        with anyio.move_on_after(_EXIT_SECONDS, shield=True):
            await agent.exit("completed")

    async def agents(self) -> list[dict[str, Any]]:
        """The realm's agents as a tree, as `steersman/agents/list` has it."""
        reply = await self.request("steersman/agents/list", {}, repeat=True)
        return reply["agents"]


@asynccontextmanager
async def connect(
    target: str | StdioServerParameters | Server[Any],
    *,
    token: str | None = None,
    elicitation: ElicitationFnT | None = None,
) -> AsyncGenerator[Host]:
    """Connect a host to a Steersman server.

    The connection outlives a cancellation for as long as the agents of the block need to exit.

    Args:
        target: the URL of a server (`http://127.0.0.1:7437/mcp`), the command of one to start and talk to over its
            pipes, or a server in this very process.
        token: for a URL the bearer token, as `steersman token new` made it.
        elicitation: shows a form to the human and brings the answer back. Without one, agents cannot ask.

    Raises:
        ConnectError: no connection came about.

    Example:
        ```python
        from typing import Any

        from mcp.server.lowlevel import Server
        from steersman_client import connect


        async def main(server: Server[Any]) -> None:
            async with connect(server) as host, host.agent(label="main") as agent:
                assert [shown["agent_id"] for shown in await host.agents()] == [agent.id]
        ```
    """
    closing = anyio.Event()
    failure: BaseException | None = None
    refused: list[int] = []

    async def keep(*, task_status: TaskStatus[Client]) -> None:
        async with AsyncExitStack() as stack:
            scope = stack.enter_context(anyio.CancelScope())
            way: Any = target
            if isinstance(target, str):
                http = await stack.enter_async_context(_http_client(token, refused))
                way = streamable_http_client(target, http_client=http, max_sse_event_size=None)
            client = await stack.enter_async_context(Client(way, elicitation_callback=elicitation))
            # From here on a cancellation ends the block first.
            scope.shield = True
            task_status.started(client)
            await closing.wait()

    async with anyio.create_task_group() as group:
        try:
            try:
                with anyio.fail_after(_CONNECT_SECONDS):
                    client: Client = await group.start(keep)
            except TimeoutError:
                silence = TimeoutError(f"nothing came back within {_CONNECT_SECONDS:.0f} s")
                raise ConnectError(_spell(target), silence) from None
            except Exception as error:
                raise ConnectError(_spell(target), error, refused) from error
            yield Host(client)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - carried out of the task group as it is
            failure = error
        finally:
            closing.set()
    if failure is not None:
        raise failure


class _HttpClient(httpx2.AsyncClient):
    """A message that cannot be sent, or is cut off, fails alone: the SDK would end the whole connection with it."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
            if response.headers.get("content-type", "").startswith("application/json"):
                await response.aread()
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            lost = {"code": CONNECTION_CLOSED, "message": f"{type(error).__name__}: {error}"}
            return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": lost}, request=request)
        return response


def _http_client(token: str | None, refused: list[int]) -> httpx2.AsyncClient:
    """A client for one server; the statuses with which it refuses something go into `refused`."""

    async def note(response: httpx2.Response) -> None:
        if response.is_client_error:
            refused.append(response.status_code)

    return _HttpClient(
        headers={"Authorization": f"Bearer {token}"} if token is not None else {},
        timeout=httpx2.Timeout(30, read=300),
        limits=httpx2.Limits(max_connections=None),  # each agent that waits has two requests open
        event_hooks={"response": [note]},
    )


def _spell(target: str | StdioServerParameters | Server[Any]) -> str:
    if isinstance(target, StdioServerParameters):
        return shlex.join([target.command, *target.args])
    return target if isinstance(target, str) else target.name
