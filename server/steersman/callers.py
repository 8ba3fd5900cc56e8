"""Who is calling: from the context of one request to the activation it claims to be, perhaps dead.

Resolved anew for each request. The first claim that is present decides; one that is present and does not hold makes a
dead caller, and nothing falls through to a weaker claim. Tool arguments, client info and other headers never count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from steersman import codex
from steersman.registry import Activation, AgentRegistry, Binding

CREDENTIAL_META: Final = "steersman/agent"
CREDENTIAL_HEADER: Final = "Steersman-Agent"


@dataclass(frozen=True)
class Claim:
    """What one request says of its caller, and over what it came."""

    binding: Binding
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    credential_headers: Sequence[str] = ()


def resolve(registry: AgentRegistry, claim: Claim) -> Activation:
    """The activation that stands behind a request.

    Returns:
        The live activation, or one that is not live: of a credential that ended, or nobody at all.
    """
    binding = claim.binding
    if CREDENTIAL_META in claim.meta:
        return _by_credential(registry, binding, claim.meta[CREDENTIAL_META])
    if claim.credential_headers:
        values = set(claim.credential_headers)
        return _by_credential(registry, binding, values.pop() if len(values) == 1 else None)
    if binding.profile == "codex":
        thread = codex.identify(claim.meta)
        entered = registry.enter_profiled(binding, thread.agent_id, thread.owner_id) if thread is not None else None
        return entered or registry.nobody
    if registry.hosted(binding):
        # The host knows identities, so a call without one is a forgotten credential and must not make a root.
        return registry.nobody
    return registry.enter_root(binding)


def _by_credential(registry: AgentRegistry, binding: Binding, credential: object) -> Activation:
    found = registry.by_credential(binding.realm, credential) if isinstance(credential, str) else None
    return found or registry.nobody
