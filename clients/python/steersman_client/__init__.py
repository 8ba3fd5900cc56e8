"""For hosts with code of their own: enter agents into a Steersman server, call its tools as them, and steer them.

Works the same in memory, over a pipe and over HTTP, in both eras of MCP:

- `connect` makes the connection, `Host` enters agents over it, and `Agent` is one of them;
- `TurnLoop` runs an agent's turns on any model client, so that what it is sent reaches it.
"""

from steersman_client.agent import Agent, Message, Reading, Watched
from steersman_client.errors import ConnectError, HostMethodError
from steersman_client.host import Host, connect
from steersman_client.turns import Step, StepFunction, Turn, TurnLoop

__all__ = [
    "Agent",
    "ConnectError",
    "Host",
    "HostMethodError",
    "Message",
    "Reading",
    "Step",
    "StepFunction",
    "Turn",
    "TurnLoop",
    "Watched",
    "connect",
]
