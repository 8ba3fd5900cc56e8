"""What a pipe knows of the messages that pass through it: which requests are open, and whose ids are whose.

A request of the host keeps its id. A request of a server gets one that no other server's has, because the host's answer
may come when another server is there, and must not reach the wrong request.

The pipe imports this, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from steersman.json_values import is_object
from steersman.serving.wire import read_object

CONNECTION_CLOSED: Final = -32000
"""The JSON-RPC error after which the MCP SDK's client sends the request again."""
PARSE_ERROR: Final = -32700

_REPEATABLE: Final = frozenset(("initialize", "server/discover", "ping", "tools/list", "prompts/list"))
_QUESTIONS: Final = frozenset(("ask_user_question", "exit_plan_mode"))
_METHOD: Final = re.compile(rb'"method"\s*:')

Kind = Literal["request", "cancel", "initialized", "response", "other"]


@dataclass(frozen=True)
class HostLine:
    """One line of the host."""

    data: bytes
    """As it goes to the server, without its end."""
    kind: Kind
    id: Any = None
    """Of a request; of a cancelled one too."""
    method: str = ""
    tool: str = ""
    repeated: bool = False
    """Whether it went to a server before, which ended without an answer."""

    @property
    def key(self) -> str:
        """Tells ids apart as JSON does: 1 is not "1"."""
        return json.dumps(self.id)

    @property
    def may_be_repeated(self) -> bool:
        """Whether nothing can come of it twice."""
        return self.method in _REPEATABLE and not self.repeated


def read_host_line(data: bytes) -> HostLine:
    message = read_object(data)
    if message is None:
        return HostLine(data, "other")
    method, given = message.get("method"), message.get("id")
    given_params: object = message.get("params")
    params: Mapping[str, object] = given_params if is_object(given_params) else {}
    if not isinstance(method, str):
        return HostLine(data, "response", given) if "method" not in message and "id" in message else _other(data)
    if _is_id(given):
        tool = params.get("name") if method == "tools/call" else ""
        return HostLine(data, "request", given, method, tool if isinstance(tool, str) else "")
    if method == "notifications/cancelled":
        return HostLine(data, "cancel", params.get("requestId"), method)
    return HostLine(data, "initialized" if method == "notifications/initialized" else "other", None, method)


def _other(data: bytes) -> HostLine:
    return HostLine(data, "other")


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


class OpenCalls:
    """The host's requests that the server at hand has and has not answered."""

    def __init__(self) -> None:
        self._open: dict[str, list[HostLine]] = {}

    def sent(self, line: HostLine) -> None:
        """The server has the line."""
        if line.kind == "request":
            self._open.setdefault(line.key, []).append(line)
        elif line.kind == "cancel":
            # Nobody waits for its answer any more.
            self._open.pop(line.key, None)

    def answered(self, given: object) -> HostLine | None:
        """The server answered the request of that id: which one it was."""
        key = json.dumps(given)
        lines = self._open.get(key)
        if not lines:
            return None
        line = lines.pop(0)
        if not lines:
            del self._open[key]
        return line

    def take_all(self) -> list[HostLine]:
        """All that are open, which are not any more: the server is gone."""
        taken = [line for lines in self._open.values() for line in lines]
        self._open.clear()
        return taken


class ServerRequests:
    """The requests of servers that the host has not answered, under ids of this pipe.

    Args:
        name: a text that begins the ids, and that nobody else's ids begin with.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._open: dict[str, Any] = {}
        self._ours: Final = re.compile(rb'"id"\s*:\s*"(' + re.escape(name.encode()) + rb'-\d+)"')

    def to_host(self, message: dict[str, Any]) -> bytes:
        """A server's request, as the host gets it."""
        self._count += 1
        ours = f"{self._name}-{self._count}"
        self._open[ours] = message["id"]
        return _compact({**message, "id": ours})

    def cancelled(self, message: dict[str, Any]) -> bytes | None:
        """A server's cancellation of a request of its, as the host gets it; none if there is nothing to cancel."""
        found: object = message.get("params")
        params: Mapping[str, object] = found if is_object(found) else {}
        wanted = params.get("requestId")
        for ours, theirs in self._open.items():
            if json.dumps(theirs) == json.dumps(wanted):
                del self._open[ours]
                return _compact({**message, "params": {**params, "requestId": ours}})
        return None

    def from_host(self, line: HostLine) -> bytes | None:
        """The host's answer, as the server at hand gets it; none if it is for none of its requests."""
        if not isinstance(line.id, str) or line.id not in self._open:
            return None
        message = read_object(line.data)
        assert message is not None
        return json.dumps({**message, "id": self._open.pop(line.id)}).encode()

    def unreadable(self, data: bytes) -> bytes | None:
        """An error in place of an answer that cannot be read, so that nobody waits for it; none if it is none."""
        found = self._ours.search(data)
        if found is None or _METHOD.search(data):
            return None
        given = found[1].decode()
        if given not in self._open:
            return b""
        error = {"code": PARSE_ERROR, "message": "Parse error: the answer is not JSON that can be read"}
        return _compact({"jsonrpc": "2.0", "id": self._open.pop(given), "error": error})

    def withdraw_all(self, reason: str) -> list[bytes]:
        """What the host is told of the requests of a server that is gone."""
        ids = list(self._open)
        self._open.clear()
        return [
            _compact(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": given, "reason": reason},
                }
            )
            for given in ids
        ]


def failed(line: HostLine, reason: str, *, maybe_done: bool) -> bytes:
    """The answer to a request that no server answers any more.

    Args:
        line: the request.
        reason: why, and what to do about it; whole sentences.
        maybe_done: whether a server had it, so that nobody knows what became of it.
    """
    if line.method != "tools/call":
        return _response(line, {"error": {"code": CONNECTION_CLOSED, "message": f"Connection closed: {reason}"}})
    # Only now, when time does not matter any more.
    from steersman.contract.results import error_object, error_text
    from steersman.errors import SteersmanError, ToolError, UserQuestionError

    error: SteersmanError
    if maybe_done and line.tool in _QUESTIONS:
        error = UserQuestionError("ASK_ABORTED")
    else:
        unknown = " Whether it had accepted the message is not known." if maybe_done else ""
        error = ToolError("SERVER_UNAVAILABLE", reason=reason + (unknown if line.tool == "steer_subagent" else ""))
    result: Mapping[str, Any] = {
        "content": [{"type": "text", "text": error_text(error)}],
        "structuredContent": {"error": error_object(error)},
        "isError": True,
    }
    modern = b"io.modelcontextprotocol/protocolVersion" in line.data
    return _response(line, {"result": {**result, "resultType": "complete"} if modern else result})


def _response(line: HostLine, outcome: Mapping[str, object]) -> bytes:
    return _compact({"jsonrpc": "2.0", "id": line.id, **outcome})


def _compact(message: Mapping[str, object]) -> bytes:
    # Half a surrogate pair in an id, for one, has no UTF-8.
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode()
