"""One agent of a host: what it calls, what it reads, and its life."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, GetPromptResult, RequestParamsMeta, TextContent

from steersman_client.errors import HostMethodError, check_text, not_live

if TYPE_CHECKING:
    from steersman_client.host import Host

WATCH_SECONDS: Final = 55.0
"""How long one look at an agent's state waits; its lease, if it has one, is longer."""
AWAY_SECONDS: Final = 5.0
"""How long an agent waits before it looks whether its connection is back."""
_CREDENTIAL: Final = "steersman/agent"

Mode = Literal["continuable", "one-shot"]
Outcome = Literal["completed", "failed", "aborted"]
At = Literal["begin", "idle", "step", "end"]


@dataclass(frozen=True)
class Message:
    """An instruction from somebody else. Its text is data: say to the model whose it is."""

    seq: int
    """Counts up in the order of reading, over all activations of the agent."""
    id: str
    text: str
    kind: Literal["agent", "human", "host", "notice"]
    """Who speaks. A notice is the server's own: a message that this agent sent was not delivered."""
    agent_id: str | None
    """The agent that sent it; of a notice, the agent that it is about."""
    accepted_at: str
    """RFC 3339, in UTC."""


@dataclass(frozen=True)
class Reading:
    """What the server said at a boundary."""

    turn: int
    open: bool
    messages: Sequence[Message]
    interrupted: bool
    plan_mode: bool


@dataclass(frozen=True)
class Watched:
    """The state of an agent between two boundaries."""

    version: int
    interrupt_turn: int | None
    """The turn that is to stop."""
    waiting: int
    """How many messages wait for it."""
    resume: Sequence[str]
    """Ids of its stored subagents that messages wait for."""


class Agent:
    """An agent that lives, and the credential that calls in its name carry. `Host.enter` and `Host.agent` make them.

    Attributes:
        host: whose agent it is.
        id: its id.
        resume_key: enters this id again; the same for all activations of the agent.
        owner: the agent that owns it; none for a root.
        parent_session: the owner's id at the agent's first entry; empty for a root.
        delegation_depth: how deep it stood at its first entry; 0 for a root.
        lease_seconds: how long it outlives its last open request; 0 if it ends with its connection.
        credential: names this activation. It changes when the agent is entered again.

    Example:
        ```python
        from typing import Any

        from mcp.server.lowlevel import Server
        from steersman_client import connect


        async def main(server: Server[Any]) -> None:
            async with connect(server) as host, host.agent(label="main") as main, host.agent(owner=main) as helper:
                receipt = await main.send(helper.id, "Look at the tests first.")
                assert receipt["route"] == "wakeup"
                refused = await helper.call_tool("ask_user_question", {"questions": [{"question": "May I?"}]})
                assert refused.structured_content["error"]["code"] == "DELEGATED_CALLER"
        ```
    """

    def __init__(self, host: Host, entered: Mapping[str, Any], owner: Agent | None) -> None:
        self.host: Final = host
        self.id: Final[str] = entered["agent_id"]
        self.resume_key: Final[str] = entered["resume_key"]
        self.owner: Final = owner
        self.parent_session: Final[str] = entered["session"]["parent_session"]
        self.delegation_depth: Final[int] = entered["session"]["delegation_depth"]
        self.lease_seconds: Final[float] = entered["lease_ms"] / 1000
        self.credential: str = entered["credential"]
        self._renewing = anyio.Lock()
        self._exited = False

    @property
    def meta(self) -> RequestParamsMeta:
        """What to put into `_meta` of a request, so that it is this agent's."""
        return cast("RequestParamsMeta", {_CREDENTIAL: self.credential})

    async def call_tool(self, name: str, arguments: dict[str, Any], *, meta: Mapping[str, Any] = {}) -> CallToolResult:
        """Call a tool of the server as this agent. `meta` goes into `_meta` beside the credential.

        Arguments that are no Unicode text cannot be sent: they are refused here, by the result that the server has for
        them.
        """
        try:
            check_text(arguments)
        except HostMethodError as error:
            refusal = {**error.data, "name": "ToolError"}
            text = TextContent(type="text", text=f"{error.code}: {refusal['message']}")
            return CallToolResult(content=[text], structured_content={"error": refusal}, is_error=True)
        whole = cast("RequestParamsMeta", {**meta, **self.meta})
        return await self.host.client.call_tool(name, arguments, meta=whole)

    async def get_prompt(self, name: str) -> GetPromptResult:
        """Get a prompt of the server as this agent: `plan` turns its plan mode on."""
        return await self.host.client.get_prompt(name, meta=self.meta)

    async def set_plan_mode(self, active: bool) -> Literal["committed", "queued", "cancelled", "noop"]:
        """Turn this agent's plan mode on or off.

        Returns:
            `committed`; while a turn runs `queued` for its next boundary, or `cancelled` if a switch that was queued is
            taken back; `noop` if it is so already.
        """
        reply = await self._repeated("steersman/plan/set", {"active": active})
        return reply["result"]

    # --- steering ----------------------------------------------------------------------------------------------------

    async def send(self, agent_id: str, text: str, *, at: Literal["step", "turn"] = "step") -> dict[str, Any]:
        """Send a message in this agent's name to one of its direct subagents; it reads as the host's.

        Args:
            agent_id: the subagent.
            text: at most 256 KiB.
            at: `step` to be read before the next step, `turn` to stop the current turn first.

        Returns:
            `{route, message_id, queued_ahead}`.

        Raises:
            HostMethodError: `UNKNOWN_SUBAGENT`, `SUBAGENT_FINISHED`, `SUBAGENT_CLOSING`, `LIMIT_EXCEEDED`,
                `INVALID_ARGUMENTS`, `CALLER_NOT_LIVE`.
        """
        params = {"agent_id": agent_id, "text": text, "at": at}
        return await self._repeated("steersman/agents/send", params, key=uuid.uuid4().hex)

    async def interrupt(self, agent_id: str) -> int | None:
        """Stop the current turn of a direct or deeper subagent; its mailbox is kept.

        Returns:
            The number of that turn; none if no turn runs.

        Raises:
            HostMethodError: `UNKNOWN_SUBAGENT`, `CALLER_NOT_LIVE`.
        """
        return (await self._repeated("steersman/agents/interrupt", {"agent_id": agent_id}))["turn"]

    # --- boundaries; `TurnLoop` knows when to call which -------------------------------------------------------------

    async def next(self, *, turn: int, at: At, after: int, wait: float = 0) -> Reading:
        """Read the mailbox at a boundary. Whatever does not fit changes nothing and tells where the turn stands.

        Args:
            turn: the newest turn the host knows of; 0 before the first.
            at: `begin` opens a turn, `idle` waits for work and opens one, `step` lies between two steps, `end` closes
                the turn unless something is left to read in it.
            after: the highest `seq` that is in the transcript.
            wait: seconds that `idle` waits at most, up to 60.

        Raises:
            HostMethodError: `CALLER_NOT_LIVE`; `INVALID_ARGUMENTS` for an `after` that was never handed out.
        """
        params = {"turn": turn, "at": at, "after": after, "wait_ms": round(wait * 1000)}
        reply = await self._repeated("steersman/agents/next", params, wait=wait)
        messages = [_message(raw) for raw in reply["messages"]]
        return Reading(reply["turn"], reply["open"], messages, reply["interrupted"], reply["plan_mode"])

    async def watch(self, *, seen: int, wait: float = 0) -> Watched:
        """Wait until the agent's state is not the one of version `seen`; it keeps the lease meanwhile.

        Args:
            seen: 0 before the first.
            wait: seconds to wait at most, up to 60.

        Raises:
            HostMethodError: `CALLER_NOT_LIVE`.
        """
        params = {"seen": seen, "wait_ms": round(wait * 1000)}
        reply = await self._repeated("steersman/agents/watch", params, wait=wait)
        return Watched(reply["version"], reply["interrupt_turn"], reply["waiting"], reply["resume"])

    # --- life --------------------------------------------------------------------------------------------------------

    async def exit(self, outcome: Outcome = "completed", *, final: str = "") -> list[str]:
        """End the activation, handing over its final result. Ending it a second time is no error.

        Returns:
            The ids of messages that can no longer be delivered; who sent them is told.
        """
        self._exited = True
        try:
            return (await self._repeated("steersman/agents/exit", {"outcome": outcome, "final": final}))["missed"]
        except HostMethodError as error:
            if error.code != "CALLER_NOT_LIVE":
                raise
            return []

    async def renew(self, dead: str) -> None:
        """Enter the agent again, after its lease ran out: the machine slept, or the network was away.

        Args:
            dead: the credential that was refused. If the agent was entered again since, there is nothing to do.

        Raises:
            HostMethodError: `CALLER_NOT_LIVE` if it was ended here, or somebody else has entered it; or whatever else
                stands in the way.
        """
        async with self._renewing:
            if self.credential != dead:
                return
            if self._exited:
                raise not_live()
            try:
                again = await self._enter_again()
            except HostMethodError as error:
                if error.code == "AGENT_LIVE":
                    raise not_live() from None
                if error.code != "CALLER_NOT_LIVE" or self.owner is None:
                    raise
                # Its owner's lease ran out as well.
                await self.owner.renew(self.owner.credential)
                again = await self._enter_again()
            self.credential = again.credential

    async def _enter_again(self) -> Agent:
        return await self.host.enter(agent_id=self.id, resume_key=self.resume_key, owner=self.owner)

    @asynccontextmanager
    async def attended(self, heed: Callable[[Watched | None], None] | None = None) -> AsyncGenerator[None]:
        """Watch the agent during a block, which keeps its lease, and enter it again should that run out all the same.

        Args:
            heed: is given each new state; None once the agent is lost for good.
        """
        failure: BaseException | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._attend, heed)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - carried out of the task group as it is
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _attend(self, heed: Callable[[Watched | None], None] | None) -> None:
        seen = 0
        while True:
            credential = self.credential
            try:
                watched = await self.watch(seen=seen, wait=WATCH_SECONDS)
            except HostMethodError:
                if not await self._is_renewed(credential):
                    if heed is not None:
                        heed(None)
                    return
            except MCPError:
                # The connection is away. If it stays away, the calls of the block find out.
                await anyio.sleep(AWAY_SECONDS)
            else:
                seen = watched.version
                if heed is not None:
                    heed(watched)

    async def _is_renewed(self, dead: str) -> bool:
        try:
            await self.renew(dead)
        except HostMethodError:
            return False
        except MCPError:
            await anyio.sleep(AWAY_SECONDS)
        return True

    async def _repeated(
        self, method: str, params: Mapping[str, Any], *, wait: float = 0, key: str | None = None
    ) -> dict[str, Any]:
        whole = {"credential": self.credential, **params}
        return await self.host.request(method, whole, wait=wait, key=key, repeat=True)


def _message(raw: Mapping[str, Any]) -> Message:
    source = raw["source"]
    return Message(
        raw["seq"], raw["message_id"], raw["text"], source["kind"], source.get("agent_id"), raw["accepted_at"]
    )
