"""The host methods: JSON-RPC methods that no model can reach, for hosts with code of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from steersman.agent_tree import agent_tree
from steersman.callers import call_key
from steersman.canonical import digest
from steersman.contract.arguments import check_message
from steersman.errors import HostError, ToolError
from steersman.messages import CallId, Message
from steersman.registry import LEASE_SECONDS, Activation, Binding
from steersman.services import Services
from steersman.text import is_unicode

MAX_LABEL: Final = 256
MAX_FINAL: Final = 1024 * 1024
MAX_WAIT_MS: Final = 60_000
MAX_NUMBER: Final = 2**53 - 1
"""What every JSON reader keeps exactly."""

P = TypeVar("P", bound="Params")


@dataclass(frozen=True)
class HostRequest:
    """What every host method is given beside its own parameters."""

    services: Services
    binding: Binding
    method: str
    meta: Mapping[str, Any]

    def live(self, credential: str) -> Activation:
        """The live activation of this realm that a credential names.

        Raises:
            HostError: `CALLER_NOT_LIVE`.
        """
        activation = self.services.registry.by_credential(self.binding.realm, credential)
        if activation is None or not self.services.registry.is_live(activation):
            raise HostError("CALLER_NOT_LIVE")
        return activation


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


class NextParams(Params):
    credential: str
    turn: int = Field(ge=0, le=MAX_NUMBER)
    at: Literal["begin", "idle", "step", "end"]
    after: int = Field(ge=0, le=MAX_NUMBER)
    wait_ms: int = Field(0, ge=0, le=MAX_WAIT_MS)


class WatchParams(Params):
    credential: str
    seen: int = Field(ge=0, le=MAX_NUMBER)
    wait_ms: int = Field(0, ge=0, le=MAX_WAIT_MS)


class InterruptParams(Params):
    credential: str
    agent_id: str


class SendParams(Params):
    credential: str
    agent_id: str
    text: str
    at: Literal["step", "turn"]


class ListParams(Params):
    pass


class PlanSetParams(Params):
    credential: str
    active: bool


async def enter(request: HostRequest, params: EnterParams) -> Mapping[str, Any]:
    if "owner" not in params.model_fields_set:
        return await _enter(request, params, None)
    owner = request.live(params.owner)
    with request.services.registry.hold(owner):
        return await _enter(request, params, owner)


async def _enter(request: HostRequest, params: EnterParams, owner: Activation | None) -> Mapping[str, Any]:
    services = request.services
    given = params.model_fields_set
    entered = services.registry.enter(
        request.binding,
        owner=owner,
        agent_id=params.id if "id" in given else None,
        resume_key=params.resume_key if "resume_key" in given else None,
        label=params.label,
        mode=params.mode,
        supersede=params.supersede,
    )
    agent = entered.activation.agent
    await services.turns.entered(entered.activation)
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


async def next_messages(request: HostRequest, params: NextParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    with request.services.registry.hold(activation):
        reading = await request.services.turns.next(
            activation, turn=params.turn, at=params.at, after=params.after, wait=params.wait_ms / 1000
        )
    return {
        "turn": reading.turn,
        "open": reading.open,
        "messages": [_shape_message(seq, message) for seq, message in reading.messages],
        "interrupted": reading.interrupted,
        "plan_mode": reading.plan_mode,
    }


def _shape_message(seq: int, message: Message) -> Mapping[str, Any]:
    source = {"kind": message.kind, **({} if message.agent_id is None else {"agent_id": message.agent_id})}
    accepted = datetime.fromtimestamp(message.accepted_at, UTC).isoformat(timespec="milliseconds")
    return {
        "seq": seq,
        "message_id": message.id,
        "text": message.text,
        "source": source,
        "accepted_at": accepted.replace("+00:00", "Z"),
    }


async def watch(request: HostRequest, params: WatchParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    with request.services.registry.hold(activation):
        watched = await request.services.turns.watch(activation, seen=params.seen, wait=params.wait_ms / 1000)
    return {
        "version": watched.version,
        "interrupt_turn": watched.interrupt_turn,
        "waiting": watched.waiting,
        "resume": list(watched.resume),
    }


async def interrupt(request: HostRequest, params: InterruptParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    with request.services.registry.hold(activation):
        return {"turn": await request.services.steering.interrupt(activation, params.agent_id)}


async def send(request: HostRequest, params: SendParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    check_message(params.text)
    key = call_key(request.method, request.meta)
    # Without the credential: the host may have entered its agent again before it retried.
    call = None if key is None else CallId(key, digest([params.agent_id, params.text, params.at]))
    with request.services.registry.hold(activation):
        receipt = await request.services.steering.steer(
            activation, params.agent_id, params.text, params.at, call=call, kind="host"
        )
    return receipt.as_json()


async def exit_agent(request: HostRequest, params: ExitParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    missed = await request.services.turns.exit(activation, params.outcome, params.final)
    return {"missed": list(missed)}


async def list_agents(request: HostRequest, params: ListParams) -> Mapping[str, Any]:
    del params
    return {"agents": agent_tree(request.services, request.binding.realm)}


async def set_plan_mode(request: HostRequest, params: PlanSetParams) -> Mapping[str, Any]:
    activation = request.live(params.credential)
    with request.services.registry.hold(activation):
        return {"result": await request.services.plan_mode.set(activation.agent, params.active)}


Serve = Callable[[HostRequest, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


def _method(model: type[P], run: Callable[[HostRequest, P], Awaitable[Mapping[str, Any]]]) -> Serve:
    async def serve(request: HostRequest, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, value in raw.items():
            if isinstance(value, str) and not is_unicode(value):
                reason = f"at {name[:60]!a}, found half of a surrogate pair; allowed is valid Unicode text."
                raise ToolError("INVALID_ARGUMENTS", reason=reason)
        return await run(request, model.model_validate(raw))

    return serve


HOST_METHODS: Final[Mapping[str, Serve]] = {
    "steersman/agents/enter": _method(EnterParams, enter),
    "steersman/agents/next": _method(NextParams, next_messages),
    "steersman/agents/watch": _method(WatchParams, watch),
    "steersman/agents/interrupt": _method(InterruptParams, interrupt),
    "steersman/agents/send": _method(SendParams, send),
    "steersman/agents/exit": _method(ExitParams, exit_agent),
    "steersman/agents/list": _method(ListParams, list_agents),
    "steersman/plan/set": _method(PlanSetParams, set_plan_mode),
}
"""Each host method by name: it raises `pydantic.ValidationError` for parameters of a wrong shape."""
