"""The MCP SDK's low-level server with one tool that does nothing, and nothing of ours.

`python -m tests.benchmarks.bare` serves it on stdio.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

TOOL: Final = "ask_user_question"
_CONTRACT: Final = Path(__file__).resolve().parents[2] / "schemas" / "v1" / f"{TOOL}.json"


def bare_server() -> Server[Any]:
    schema = json.loads(_CONTRACT.read_text())["inputSchema"]
    tool = Tool.model_validate({"name": TOOL, "inputSchema": schema})

    async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="ok")])

    return Server(
        "bare",
        version="0",
        get_tool_input_schema=lambda name: schema if name == TOOL else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve_stdio, bare_server())
