"""The host methods: JSON-RPC methods that no model can reach, for hosts with code of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from steersman.errors import HostError
from steersman.journal import AgentEntered, AgentExited
from steersman.registry import LEASE_SECONDS, Activation, Agent, Binding
from steersman.services import Services

P = TypeVar("P", bound="Params")


class Params(BaseModel):
    """Parameters as the wire spells them. A member that is not listed, or null, is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class EnterParams(Params):
    id: str = ""
    resume_key: str = ""
    owner: str = ""
    label: str = ""
    mode: Literal["continuable", "one-shot"] = "continuable"
    supersede: bool = False
    plan_mode: bool = False


class ExitParams(Params):
    credential: str
    outcome: Literal["completed", "failed", "aborted"]
    final: str = ""


class ListParams(Params):
    pass


class PlanSetParams(Params):
    credential: str
    active: bool


async def enter(services: Services, binding: Binding, params: EnterParams) -> Mapping[str, Any]:
    given = params.model_fields_set
    owner = _live(services, binding, params.owner) if "owner" in given else None
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
    owned: dict[str, list[Agent]] = {}
    tops: list[Agent] = []
    known = {agent.id for agent in agents}
    for agent in agents:
        owner_id = _owner_of(agent)
        if owner_id in known:
            owned.setdefault(owner_id, []).append(agent)
        else:
            tops.append(agent)

    def shape(agent: Agent) -> dict[str, Any]:
        current = agent.current
        return {
            "agent_id": agent.id,
            "label": agent.label,
            "mode": agent.mode,
            "status": services.registry.status(agent),
            "plan_mode": services.plan_mode.active(current) if current is not None else agent.plan_mode,
            "open_questions": services.questions.count_open(agent.realm, agent.id),
            "subagents": [shape(subagent) for subagent in owned.get(agent.id, ())],
        }

    return {"agents": [shape(agent) for agent in tops]}


async def set_plan_mode(services: Services, binding: Binding, params: PlanSetParams) -> Mapping[str, Any]:
    activation = _live(services, binding, params.credential)
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
