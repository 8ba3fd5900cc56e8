"""For hosts with code of their own: enter agents into a Steersman server and call its tools as them.

Works on any connection that an `mcp.Client` has, in memory, over a pipe or over HTTP, in both eras of MCP.
"""

from steersman_client.host import Agent, Host, HostMethodError

__all__ = ["Agent", "Host", "HostMethodError"]
