"""What the human's own tools, at the other end of the socket, have the server do.

A request is `{"id", "method", "params"}`, its answer `{"id", "result"}` or `{"id", "error": {"code", "message"}}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import Field, ValidationError

from steersman.contract.results import error_message
from steersman.errors import SteersmanError
from steersman.human import HumanError
from steersman.human_methods import HUMAN_METHODS, HumanParams, NoParams, show_card
from steersman.json_values import is_object
from steersman.services import Services
from steersman.serving.connections import GONE, SocketLines, Startup
from steersman.serving.wire import read_control
from steersman.settings import CommandError, Profile, SettingsError
from steersman.tokens import LOCAL_REALM, Token, TokenError
from steersman.tool_calls import internal_error


class Controlled(Protocol):
    """The server, as its own tools see it."""

    startup: Startup

    async def status(self) -> Mapping[str, Any]:
        """`{pid, version, socket, url, log, started_at, pipes, agents, waiting}`."""
        ...

    def stop(self) -> None: ...

    async def history(self, agent_id: str | None, limit: int) -> Mapping[str, Any]:
        """`{events: [{position, time, agent_id, kind, ...}]}`, the newest last."""
        ...

    async def forget(self, older_than: float) -> None:
        """Seconds."""
        ...


class HistoryParams(HumanParams):
    agent_id: str | None = None
    limit: int = Field(1000, ge=1, le=100_000)


class ForgetParams(HumanParams):
    older_than: float = Field(ge=0, strict=False)


class NewTokenParams(HumanParams):
    label: str
    subject: str = LOCAL_REALM
    profile: Profile | None = None


class TokenParams(HumanParams):
    token: str
    """Its id or label."""


async def _status(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    NoParams.model_validate(raw)
    return await server.status()


async def _stop(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    NoParams.model_validate(raw)
    server.stop()
    return {}


async def _history(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    params = HistoryParams.model_validate(raw)
    return await server.history(params.agent_id, params.limit)


async def _forget(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    await server.forget(ForgetParams.model_validate(raw).older_than)
    return {}


async def _new_token(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    params = NewTokenParams.model_validate(raw)
    services = await server.startup.services()
    return {"token": await services.tokens.new(params.label, params.subject, params.profile)}


async def _list_tokens(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    NoParams.model_validate(raw)
    services = await server.startup.services()
    return {"tokens": [_show_token(token) for token in services.tokens.list()]}


async def _revoke_token(server: Controlled, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    params = TokenParams.model_validate(raw)
    services = await server.startup.services()
    return _show_token(await services.tokens.revoke(params.token))


def _show_token(token: Token) -> Mapping[str, Any]:
    return {
        "id": token.id,
        "label": token.label,
        "subject": token.subject,
        "profile": token.profile,
        "created_at": datetime.fromtimestamp(token.created_at, UTC).isoformat(timespec="seconds"),
    }


_METHODS: Final[Mapping[str, Callable[[Controlled, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]]] = {
    "status": _status,
    "stop": _stop,
    "history": _history,
    "forget": _forget,
    "new_token": _new_token,
    "list_tokens": _list_tokens,
    "revoke_token": _revoke_token,
}


class ControlConnection:
    """One of the human's tools."""

    def __init__(self, server: Controlled, lines: SocketLines) -> None:
        self._server = server
        self._lines = lines
        self._attending = False

    async def serve(self) -> None:
        """Answer its requests, several at once, until it closes its end."""
        try:
            async with anyio.create_task_group() as group:
                while (line := await self._lines.receive()) is not None:
                    request = read_control(line)
                    if request is None:
                        break
                    group.start_soon(self._answer, request, group)
                group.cancel_scope.cancel()
        except* GONE:
            pass

    async def _answer(self, request: Mapping[str, object], group: TaskGroup) -> None:
        try:
            method, raw = request.get("method"), request.get("params", {})
            result = await self._run(str(method), raw if is_object(raw) else {"params": raw}, group)
            answer: Mapping[str, object] = {"result": result}
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "params"
            answer = _error("INVALID_PARAMS", f"At {where[:60]!a}: {first['msg']}.")
        except HumanError as error:
            answer = _error(error.code, str(error))
        except SteersmanError as error:
            answer = _error(error.code, error_message(error))
        except SettingsError as error:
            answer = _error("INVALID_PARAMS", str(error))
        except TokenError as error:
            answer = _error("INVALID", str(error))
        except CommandError as error:
            answer = _error("SERVER_UNAVAILABLE", str(error))
        except Exception as fault:  # noqa: BLE001 - whatever it is, the tool is told and the server serves on
            answer = _error("INTERNAL_ERROR", error_message(internal_error(fault)))
        await self._lines.send_control({"id": request.get("id"), **answer})

    async def _run(self, method: str, raw: Mapping[str, Any], group: TaskGroup) -> Mapping[str, Any]:
        if method in _METHODS:
            return await _METHODS[method](self._server, raw)
        services = await self._server.startup.services()
        if method in HUMAN_METHODS:
            return await HUMAN_METHODS[method](services, LOCAL_REALM, raw)
        if method != "attend":
            raise HumanError("UNKNOWN", f"No method {method[:60]!a} is known; this server may be another version.")
        NoParams.model_validate(raw)
        if not self._attending:
            self._attending = True
            await group.start(self._attend, services)
        return {}

    async def _attend(self, services: Services, *, task_status: TaskStatus[None]) -> None:
        """Be the human's presence, and show what waits: now, and whenever it changes."""
        with services.human.attend(LOCAL_REALM):
            task_status.started()
            while True:
                changed = services.human.changed()
                cards = [show_card(card) for card in services.human.waiting(LOCAL_REALM)]
                await self._lines.send_control({"event": "waiting", "data": {"waiting": cards}})
                await changed.wait()


def _error(code: str, message: str) -> Mapping[str, object]:
    return {"error": {"code": code, "message": message}}
