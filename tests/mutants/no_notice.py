"""Without notices: nobody is told of what was not delivered."""

from steersman.registry import Agent
from steersman.steering import Steering


def miss_all(self: Steering, agent: Agent) -> None:
    """Forget it."""


Steering._miss_all = miss_all  # pyright: ignore[reportPrivateUsage]
