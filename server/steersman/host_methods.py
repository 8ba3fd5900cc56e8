"""The host methods: JSON-RPC methods that no model can reach, for hosts with code of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from steersman.errors import HostError
from steersman.journal import AgentEntered, AgentExited
from steersman.registry import LEASE_SECONDS, Activation, Agent, Binding
from steersman.services import Services

MAX_NESTING: Final = 64
"""How deep the tree of `steersman/agents/list` is at most."""
MAX_LABEL: Final = 256
MAX_FINAL: Final = 1024 * 1024

P = TypeVar("P", bound="Params")


class Params(BaseModel):
    """Parameters as the wire spells them. A member that is not listed, or null, is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class EnterParams(Params):
    id: str = ""
    resume_key: str = ""
    owner: str = ""
    label: str = Field("", max_length=MAX_LABEL)
    mode: Literal["continuable", "one-shot"] = "continuable"
    supersede: bool = False
    plan_mode: bool = False


class ExitParams(Params):
    credential: str
    outcome: Literal["completed", "failed", "aborted"]
    final: str = Field("", max_length=MAX_FINAL)


class ListParams(Params):
    pass


class PlanSetParams(Params):
    credential: str
    active: bool


async def enter(services: Services, binding: Binding, params: EnterParams) -> Mapping[str, Any]:
    if "owner" not in params.model_fields_set:
        return await _enter(services, binding, params, None)
    owner = _live(services, binding, params.owner)
    with services.registry.hold(owner):
        return await _enter(services, binding, params, owner)


async def _enter(
    services: Services, binding: Binding, params: EnterParams, owner: Activation | None
) -> Mapping[str, Any]:
    given = params.model_fields_set
    entered = services.registry.enter(
        binding,
        owner=owner,
        agent_id=params.id if "id" in given else None,
        resume_key=params.resume_key if "resume_key" in given else None,
        label=params.label,
        mode=params.mode,
        supersede=params.supersede,
    )
    agent, owner_id = entered.activation.agent, entered.activation.owner_id
    await services.journal.append(AgentEntered(agent.realm, agent.id, owner_id))
    if "plan_mode" in given:
        await services.plan_mode.set(agent, params.plan_mode)
    header = agent.header
    return {
        "agent_id": agent.id,
        "credential": entered.credential,
        "resume_key": entered.resume_key,
        "session": {
            "parent_session": header.parent_session,
            "origin": header.origin,
            "delegation_depth": header.delegation_depth,
        },
        "lease_ms": round(LEASE_SECONDS * 1000) if entered.activation.leased else 0,
    }


async def exit_agent(services: Services, binding: Binding, params: ExitParams) -> Mapping[str, Any]:
    activation = _live(services, binding, params.credential)
    agent = activation.agent
    await services.journal.append(AgentExited(agent.realm, agent.id, params.outcome, params.final))
    services.registry.exit(activation)
    return {"missed": []}


async def list_agents(services: Services, binding: Binding, params: ListParams) -> Mapping[str, Any]:
    del params
    agents = services.registry.list(binding.realm)
    shapes = {agent.id: _shape(services, agent) for agent in agents}
    owners = {agent.id: owner_id for agent in agents if (owner_id := _owner_of(agent)) in shapes}
    tops: list[dict[str, Any]] = []
    for agent_id, shape in shapes.items():
        (shapes[owners[agent_id]]["subagents"] if _is_nested(owners, agent_id) else tops).append(shape)
    return {"agents": tops}


def _is_nested(owners: Mapping[str, str], agent_id: str) -> bool:
    """Whether an agent stands inside its owner: it has one, and a few steps up there is one that has none.

    Chains may be longer than JSON can be nested, and agents can own each other when one of them is stored. What would
    not be seen inside its owner stands at the top.
    """
    at = agent_id
    for _ in range(MAX_NESTING):
        if at not in owners:
            return at != agent_id
        at = owners[at]
    return False


def _shape(services: Services, agent: Agent) -> dict[str, Any]:
    current = agent.current
    return {
        "agent_id": agent.id,
        "label": agent.label,
        "mode": agent.mode,
        "status": services.registry.status(agent),
        "plan_mode": services.plan_mode.active(current) if current is not None else agent.plan_mode,
        "open_questions": services.questions.count_open(agent.realm, agent.id),
        "subagents": [],
    }


async def set_plan_mode(services: Services, binding: Binding, params: PlanSetParams) -> Mapping[str, Any]:
    activation = _live(services, binding, params.credential)
    with services.registry.hold(activation):
        return {"result": await services.plan_mode.set(activation.agent, params.active)}


def _owner_of(agent: Agent) -> str:
    """The owner that an agent is listed under: the live one's, else the one of its header."""
    if agent.current is not None:
        return agent.current.owner_id or ""
    return agent.header.parent_session


def _live(services: Services, binding: Binding, credential: str) -> Activation:
    activation = services.registry.by_credential(binding.realm, credential)
    if activation is None or not services.registry.is_live(activation):
        raise HostError("CALLER_NOT_LIVE")
    return activation


def _method(
    model: type[P], run: Callable[[Services, Binding, P], Awaitable[Mapping[str, Any]]]
) -> Callable[[Services, Binding, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]:
    async def serve(services: Services, binding: Binding, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return await run(services, binding, model.model_validate(raw))

    return serve


HOST_METHODS: Final[Mapping[str, Callable[[Services, Binding, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]]] = {
    "steersman/agents/enter": _method(EnterParams, enter),
    "steersman/agents/exit": _method(ExitParams, exit_agent),
    "steersman/agents/list": _method(ListParams, list_agents),
    "steersman/plan/set": _method(PlanSetParams, set_plan_mode),
}
"""Each host method by name: it raises `pydantic.ValidationError` for parameters of a wrong shape."""
