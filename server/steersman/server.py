"""The MCP server: `tools/list`, `tools/call`, the `plan` prompt and the host methods, the same in both eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    RequestParams,
    TextContent,
    Tool,
)
from pydantic import ConfigDict, ValidationError
from starlette.requests import Request

from steersman import __version__
from steersman.callers import resolve
from steersman.contract.files import load, tools
from steersman.contract.results import error_object, error_text
from steersman.credentials import new_secret
from steersman.errors import SteersmanError
from steersman.host_methods import HOST_METHODS, HostRequest
from steersman.registry import Binding
from steersman.services import Services
from steersman.settings import HostSettings
from steersman.tool_calls import (
    claim,
    failure,
    internal_error,
    meta_of,
    run_tool_call,
    while_client_stays,
)
from steersman.tools import TOOLS

CONNECTION_LABEL: Final = "the connection's agent"
"""What the root of a connection is called."""
_LIST_TTL_MS: Final = 24 * 3600 * 1000


class Bindings(Protocol):
    """From a request to what it came over, and to the services behind it."""

    async def of(self, ctx: Context) -> tuple[Services, Binding]:
        """Wait for both, where a server is only just starting.

        Raises:
            SteersmanError: there is none, and never will be.
        """
        ...


Context = ServerRequestContext[Bindings, Request | None]
Lifespan = Callable[[Server[Bindings]], AbstractAsyncContextManager[Bindings]]


class _OpenParams(RequestParams):
    """Anything goes: host methods validate the raw parameters by models of their own."""

    model_config = ConfigDict(extra="allow")


class _SteersmanServer(Server[Bindings]):
    """Advertises the host methods to legacy clients too, which see no extensions."""

    def create_initialization_options(
        self,
        notification_options: Any = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options, {**(experimental_capabilities or {}), **self.extensions}, extensions
        )


def stream_lifespan(services: Services, *, realm: str, host: HostSettings | None = None) -> Lifespan:
    """A lifespan for streams and memory: each connection is a binding of its own, and its agents end with it."""

    @asynccontextmanager
    async def lifespan(_: Server[Bindings]) -> AsyncGenerator[Bindings]:
        key = f"stream:{new_secret()}"
        binding = services.registry.connect(realm, key, label=CONNECTION_LABEL, host=host)
        try:
            yield _Connection(services, binding)
        finally:
            services.registry.close(binding)

    return lifespan


class _Connection:
    """One connection of streams, which is one binding."""

    def __init__(self, services: Services, binding: Binding) -> None:
        self._reached = services, binding

    async def of(self, ctx: Context) -> tuple[Services, Binding]:
        return self._reached


def make_server(lifespan: Lifespan) -> Server[Bindings]:
    """The MCP server. What it lists needs no services.

    Args:
        lifespan: yields, for each connection, what its requests came over.
    """
    contract = load("server")
    prompts = {prompt["name"]: prompt for prompt in contract["prompts"]}
    listed = ListToolsResult(tools=[Tool.model_validate(tool, by_name=False) for tool in tools()])
    hint = CacheHint(ttl_ms=_LIST_TTL_MS, scope="public")

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return listed

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.name not in TOOLS:
            known = ", ".join(TOOLS)
            raise MCPError(INVALID_PARAMS, f"Unknown tool {params.name[:60]!a}; this server has {known}.")
        try:
            services, binding = await ctx.lifespan_context.of(ctx)
            return await run_tool_call(services, binding, ctx)
        except SteersmanError as error:
            return failure(error)

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        shown = [Prompt(name=p["name"], title=p["title"], description=p["description"]) for p in prompts.values()]
        return ListPromptsResult(prompts=shown)

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        prompt = prompts.get(params.name)
        if prompt is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt {params.name[:60]!a}; this server has plan.")
        try:
            services, binding = await ctx.lifespan_context.of(ctx)
            caller = resolve(services.registry, claim(binding, ctx))
            # Who may not have a plan reviewed could never leave plan mode again.
            services.questions.admit(caller)
            with services.registry.hold(caller):
                await services.plan_mode.set(caller.agent, True)
        except SteersmanError as error:
            raise host_fault(error) from None
        message = PromptMessage(role="user", content=TextContent(type="text", text=prompt["text"]))
        return GetPromptResult(description=prompt["description"], messages=[message])

    server = _SteersmanServer(
        contract["name"],
        version=__version__,
        title=contract["title"],
        instructions=contract["instructions"],
        cache_hints={"tools/list": hint, "prompts/list": hint},
        lifespan=lifespan,
        get_tool_input_schema=lambda name: load(name)["inputSchema"] if name in TOOLS else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    server.extensions = {load("host")["extension"]: {"methods": list(HOST_METHODS)}}
    for method in HOST_METHODS:
        server.add_request_handler(method, _OpenParams, _host_handler(method))
    return server


# --- host methods ---------------------------------------------------------------------------------------------------


def _host_handler(method: str) -> Callable[[Context, _OpenParams], Awaitable[dict[str, Any]]]:
    serve = HOST_METHODS[method]

    async def handle(ctx: Context, params: _OpenParams) -> dict[str, Any]:
        raw = {key: value for key, value in (ctx.params or {}).items() if key != "_meta"}
        try:
            services, binding = await ctx.lifespan_context.of(ctx)
            request = HostRequest(services, binding, method, meta_of(ctx))
            return dict(await while_client_stays(ctx, lambda: serve(request, raw)))
        except ValidationError as error:
            raise MCPError(INVALID_PARAMS, _say_wrong_shape(method, error)) from None
        except SteersmanError as error:
            raise host_fault(error) from None
        except Exception as fault:  # noqa: BLE001 - whatever it is, the host is told and the server serves on
            raise host_fault(internal_error(fault)) from None

    return handle


def host_fault(error: SteersmanError) -> MCPError:
    """A refusal as the JSON-RPC error that host methods and prompts answer with."""
    return MCPError(load("host")["error_code"], error_text(error), error_object(error))


def _say_wrong_shape(method: str, error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "params"
    return f"Invalid parameters for {method}: at {path[:60]!a}, {first['msg']}."
