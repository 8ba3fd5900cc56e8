"""One `tools/call`, from the MCP request to its result: the caller, the tool, progress, and a client that leaves."""

from __future__ import annotations

import logging
import secrets
import traceback
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from starlette.requests import Request

from steersman.callers import CREDENTIAL_HEADER, Claim, call_key, resolve
from steersman.canonical import compact, digest
from steersman.contract.results import error_object, error_text
from steersman.errors import SteersmanError, ToolError, UserQuestionError
from steersman.json_values import is_object
from steersman.providers.elicitation import INPUT_KEY, McpChannel
from steersman.questions.requests import Resumption, Suspended
from steersman.registry import Activation, Binding
from steersman.services import Services
from steersman.tools import TOOLS, ToolCall

logger = logging.getLogger(__name__)

PROGRESS_SECONDS: Final = 10.0
"""How often a call that waits tells its client that it is alive."""

Ctx = ServerRequestContext[Any, Request | None]
"""With the HTTP request that a message came in; none on streams and in memory."""
Result = CallToolResult | InputRequiredResult
T = TypeVar("T")


class Departure:
    """Cancels the calls of one HTTP request once its client is gone and nothing can reach it any more.

    Kept in the request's ASGI scope under `KEY`. Streams need none: the SDK cancels their calls itself.
    """

    KEY: Final = "steersman.departure"

    def __init__(self) -> None:
        self._scopes: list[anyio.CancelScope] = []
        self._gone = False

    def client_left(self) -> None:
        self._gone = True
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def watch(self) -> Generator[None]:
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        if self._gone:
            scope.cancel()
        try:
            with scope:
                yield
        finally:
            self._scopes.remove(scope)


async def run_tool_call(services: Services, binding: Binding, ctx: Ctx) -> Result:
    """Run the tool that a request names.

    Raises:
        SteersmanError: what the caller is told; nothing else ever.
    """

    async def run() -> Result:
        if ctx.meta is None or "progress_token" not in ctx.meta:
            return await _run(services, binding, ctx)
        return await _with_progress(services, ctx, lambda: _run(services, binding, ctx))

    return await while_client_stays(ctx, run)


async def while_client_stays(ctx: Ctx, work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and stop when the client has left an HTTP request that it can only be answered in.

    Raises:
        UserQuestionError: `ASK_ABORTED`, for nobody to read.
    """
    departure: Departure | None = ctx.request.scope.get(Departure.KEY) if ctx.request is not None else None
    if departure is None:
        return await work()
    results: list[T] = []
    with departure.watch():
        results.append(await work())
    if not results:
        raise UserQuestionError("ASK_ABORTED")
    return results[0]


def claim(binding: Binding, ctx: Ctx) -> Claim:
    """What a request says of its caller."""
    headers = ctx.request.headers.getlist(CREDENTIAL_HEADER) if ctx.request is not None else ()
    return Claim(binding, meta_of(ctx), headers)


def failure(error: SteersmanError) -> CallToolResult:
    """A refusal as the tool result that carries it, in text and structure alike."""
    return CallToolResult(
        content=[TextContent(type="text", text=error_text(error))],
        structured_content={"error": error_object(error)},
        is_error=True,
    )


def internal_error(fault: Exception) -> ToolError:
    """A fault of ours: a reference for the caller, its kind and place for the log. Its text may quote an answer."""
    reference = secrets.token_hex(6)
    frames = traceback.extract_tb(fault.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    logger.error("internal error", extra={"reference": reference, "fault": type(fault).__name__, "at": where})
    return ToolError("INTERNAL_ERROR", reference=reference)


async def _run(services: Services, binding: Binding, ctx: Ctx) -> Result:
    params = ctx.params or {}
    name, arguments = params["name"], params.get("arguments")
    try:
        caller = resolve(services.registry, claim(binding, ctx))
        with services.registry.hold(caller):
            run = TOOLS[name]({} if arguments is None else arguments)
            result = await run(services, _tool_call(ctx, binding, caller, name, arguments))
    except SteersmanError:
        raise
    except Exception as fault:  # noqa: BLE001 - whatever it is, the caller is told and the server serves on
        raise internal_error(fault) from None
    if isinstance(result, Suspended):
        return cast("InputRequiredResult", result.payload)
    return CallToolResult(content=[TextContent(type="text", text=compact(result))], structured_content=dict(result))


def _tool_call(ctx: Ctx, binding: Binding, caller: Activation, name: str, arguments: object) -> ToolCall:
    return ToolCall(
        caller=caller,
        digest=digest([name, arguments]),
        key=call_key(name, meta_of(ctx)),
        channel=McpChannel(ctx.session, ctx.request_id),
        resumption=_resumption(ctx.params or {}),
        host=binding.host,
    )


def _resumption(params: Mapping[str, Any]) -> Resumption | None:
    responses: object = params.get("inputResponses")
    state = params.get("requestState")
    if responses is None and state is None:
        return None
    if is_object(responses) and list(responses) == [INPUT_KEY]:
        return Resumption(state, responses[INPUT_KEY])
    return Resumption(state, responses)


def meta_of(ctx: Ctx) -> Mapping[str, Any]:
    """The request's `_meta`, as it came."""
    meta: object = (ctx.params or {}).get("_meta")
    return meta if is_object(meta) else {}


async def _with_progress(services: Services, ctx: Ctx, work: Callable[[], Awaitable[T]]) -> T:
    """Report progress until `work` is done, so that a host does not give a waiting call up."""
    results: list[T] = []
    failed: Exception | None = None

    async def report() -> None:
        clock = services.clock
        started = clock.now()
        reports = 0
        while True:
            reports += 1
            await clock.sleep_until(started + reports * PROGRESS_SECONDS)
            await ctx.session.report_progress(reports, message="Waiting for the human.")

    async with anyio.create_task_group() as group:
        group.start_soon(report)
        try:
            results.append(await work())
        except Exception as error:  # noqa: BLE001 - carried out of the task group as it is
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return results[0]
