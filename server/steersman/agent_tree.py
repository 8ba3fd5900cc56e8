"""The agents of a realm as a tree, as hosts and the human are shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from steersman.registry import Agent
from steersman.services import Services

MAX_NESTING: Final = 64
"""How deep the tree is at most."""


def agent_tree(services: Services, realm: str) -> Sequence[Mapping[str, Any]]:
    """All agents of a realm, live or not, each inside its owner: the live one's, else the one of its header.

    Returns:
        `{agent_id, label, mode, status, plan_mode, open_questions, waiting, subagents}` each, in order of first entry.
    """
    agents = services.registry.list(realm)
    shapes = {agent.id: _shape(services, agent) for agent in agents}
    owners = {agent.id: owner_id for agent in agents if (owner_id := _owner_of(agent)) in shapes}
    tops: list[dict[str, Any]] = []
    for agent_id, shape in shapes.items():
        (shapes[owners[agent_id]]["subagents"] if _is_nested(owners, agent_id) else tops).append(shape)
    return tops


def _is_nested(owners: Mapping[str, str], agent_id: str) -> bool:
    """Whether an agent stands inside its owner: it has one, and a few steps up there is one that has none.

    Chains may be longer than JSON can be nested, and agents can own each other when one of them is stored. What would
    not be seen inside its owner stands at the top.
    """
    at = agent_id
    for _ in range(MAX_NESTING):
        if at not in owners:
            return at != agent_id
        at = owners[at]
    return False


def _shape(services: Services, agent: Agent) -> dict[str, Any]:
    current = agent.current
    return {
        "agent_id": agent.id,
        "label": agent.label,
        "mode": agent.mode,
        "status": services.steering.status(agent),
        "plan_mode": services.plan_mode.active(current) if current is not None else services.plan_mode.set_for(agent),
        "open_questions": services.questions.count_open(agent.realm, agent.id),
        "waiting": sum(1 for _ in services.mailboxes.of(agent).waiting()),
        "subagents": [],
    }


def _owner_of(agent: Agent) -> str:
    if agent.current is not None:
        return agent.current.owner_id or ""
    return agent.header.parent_session
