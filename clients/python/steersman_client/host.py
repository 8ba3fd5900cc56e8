"""The host methods of a Steersman server, wrapped for Python."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, GetPromptResult, Request, RequestParamsMeta, Result
from pydantic import ConfigDict

_HOST_ERROR: Final = 4001
_CREDENTIAL: Final = "steersman/agent"

Mode = Literal["continuable", "one-shot"]
Outcome = Literal["completed", "failed", "aborted"]


class HostMethodError(Exception):
    """A host method was refused.

    Attributes:
        code: the stable code, such as `CALLER_NOT_LIVE`.
        data: the whole error object, `{name, code, message, ...}`.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(f"{data['code']}: {data['message']}")
        self.code: str = data["code"]
        self.data = data


class _AnyResult(Result):
    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class Agent:
    """One activation of an agent, and the credential that calls in its name carry."""

    host: Host
    id: str
    credential: str
    resume_key: str
    """Enters this id again; the same for all activations of the agent."""
    parent_session: str
    """The owner's id at the agent's first entry; empty for a root."""
    delegation_depth: int
    lease_seconds: float
    """How long it outlives its last open request; 0 if it ends with its connection."""

    @property
    def meta(self) -> RequestParamsMeta:
        """What to put into `_meta` of a request, so that it is this agent's."""
        return cast("RequestParamsMeta", {_CREDENTIAL: self.credential})

    async def call_tool(self, name: str, arguments: dict[str, Any], *, meta: Mapping[str, Any] = {}) -> CallToolResult:
        """Call a tool of the server as this agent. `meta` goes into `_meta` beside the credential."""
        return await self.host.client.call_tool(name, arguments, meta=cast("RequestParamsMeta", {**meta, **self.meta}))

    async def get_prompt(self, name: str) -> GetPromptResult:
        """Get a prompt of the server as this agent: `plan` turns its plan mode on."""
        return await self.host.client.get_prompt(name, meta=self.meta)

    async def set_plan_mode(self, active: bool) -> str:
        """Turn this agent's plan mode on or off; returns `committed` or `noop`."""
        reply = await self.host.request("steersman/plan/set", {"credential": self.credential, "active": active})
        return reply["result"]

    async def exit(self, outcome: Outcome = "completed", *, final: str = "") -> None:
        """End the activation, handing over its final result. Ending it a second time is no error."""
        try:
            params = {"credential": self.credential, "outcome": outcome, "final": final}
            await self.host.request("steersman/agents/exit", params)
        except HostMethodError as error:
            if error.code != "CALLER_NOT_LIVE":
                raise


class Host:
    """A program that runs agents, over one connection to a Steersman server.

    Args:
        client: a connected client of the server.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call a host method by name.

        Raises:
            HostMethodError: the server refused it.
            MCPError: the parameters have a wrong shape (-32602), or the connection failed.
        """
        request = Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            result = await self.client.session.send_request(request, _AnyResult)
        except MCPError as error:
            if error.code == _HOST_ERROR:
                raise HostMethodError(error.data) from None
            raise
        return result.model_extra or {}

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
        given = {
            "id": agent_id,
            "owner": owner.credential if owner is not None else None,
            "label": label,
            "mode": mode,
            "resume_key": resume_key,
            "supersede": supersede or None,
            "plan_mode": plan_mode,
        }
        params = {name: value for name, value in given.items() if value is not None}
        reply = await self.request("steersman/agents/enter", params)
        return Agent(
            host=self,
            id=reply["agent_id"],
            credential=reply["credential"],
            resume_key=reply["resume_key"],
            parent_session=reply["session"]["parent_session"],
            delegation_depth=reply["session"]["delegation_depth"],
            lease_seconds=reply["lease_ms"] / 1000,
        )

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
        """Enter an agent for a block, and have it exit on every way out: completed, or failed by an exception.

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
        outcome: Outcome = "aborted"
        try:
            yield agent
            outcome = "completed"
        except Exception:
            outcome = "failed"
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await agent.exit(outcome)

    async def agents(self) -> list[dict[str, Any]]:
        """The realm's agents as a tree, as `steersman/agents/list` has it."""
        reply = await self.request("steersman/agents/list", {})
        return reply["agents"]
