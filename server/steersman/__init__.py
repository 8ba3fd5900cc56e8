"""Steersman: an MCP server through which agents reach their human and their working subagents."""

__version__ = "0.1.0"
