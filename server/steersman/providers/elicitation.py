"""The host's own dialog, by MCP elicitation in both eras.

Up to 2025-11-25 the server sends `elicitation/create` and waits. From 2026-07-28 on it cannot send requests: it
returns the form with a handle, and the host calls the tool again with the handle and what the human filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn, cast

import anyio
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from steersman.errors import UserQuestionError
from steersman.json_values import is_object
from steersman.providers.forms import Dialect, make_form, read_form
from steersman.questions.requests import (
    AskRequest,
    Card,
    Channel,
    HandleMaker,
    ProviderUnavailableError,
    Reply,
    Suspended,
)
from steersman.questions.types import Via

INPUT_KEY: Final = "answers"
"""The one key of `input_requests` and `input_responses`."""

_FIRST_REVISION: Final = "2025-06-18"


@dataclass(frozen=True)
class McpChannel(Channel):
    """The MCP request that a tool call came in, as far as elicitation needs it."""

    session: ServerSession
    request_id: RequestId | None


class ElicitationProvider:
    """Asks through the host, if the host declared that it can show forms."""

    name: Via = "elicitation"

    def obstacle(self, request: AskRequest) -> str | None:
        channel = request.channel
        if not isinstance(channel, McpChannel):
            return "the call came without a host that could show a form"
        session = channel.session
        if session.protocol_version < _FIRST_REVISION:
            return f"this host speaks MCP {session.protocol_version}, which has no elicitation"
        capabilities = session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        if elicitation is None:
            return "this host did not declare the elicitation capability"
        if elicitation.form is None and elicitation.url is not None:
            return "this host declared elicitation by URL only, not by form"
        if not _is_modern(session) and not session.can_send_request:
            return "this host's connection takes no requests from the server"
        return None

    async def ask(self, card: Card, handle: HandleMaker) -> Reply | Suspended:
        channel = cast("McpChannel", card.request.channel)
        session = channel.session
        form = make_form(card.request.questions, card.request.intent, _dialect(session))
        if _is_modern(session):
            request = ElicitRequest(params=ElicitRequestFormParams(message=form.message, requested_schema=form.schema))
            return Suspended(InputRequiredResult(input_requests={INPUT_KEY: request}, request_state=handle()))
        try:
            result = await session.elicit_form(form.message, form.schema, related_request_id=channel.request_id)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise UserQuestionError("ASK_ABORTED") from None
            if error.code == PARSE_ERROR:
                _invalid("a form result that cannot be read")
            raise ProviderUnavailableError(f"this host answered the form with error {error.code}.") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise UserQuestionError("ASK_ABORTED") from None
        except ValidationError:
            _invalid("a form result of a wrong shape")
        return _read(card, result.action, result.content, _dialect(session))

    def resume(self, card: Card, answer: object) -> Reply:
        if is_object(answer):
            return _read(card, answer.get("action"), answer.get("content"), "2025-11-25")
        _invalid("an answer to something that was not asked")


def _is_modern(session: ServerSession) -> bool:
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _dialect(session: ServerSession) -> Dialect:
    return "2025-06-18" if session.protocol_version < "2025-11-25" else "2025-11-25"


def _read(card: Card, action: object, content: object, dialect: Dialect) -> Reply:
    match action:
        case "decline":
            raise UserQuestionError("ASK_DECLINED")
        case "cancel":
            raise UserQuestionError("ASK_CANCELLED")
        case "accept":
            return read_form(card.request.questions, content if is_object(content) else {}, dialect)
        case _:
            _invalid("an action that is neither accept nor decline nor cancel")


def _invalid(found: str) -> NoReturn:
    raise UserQuestionError("ANSWER_INVALID", reason=f"Found was {found}.")
