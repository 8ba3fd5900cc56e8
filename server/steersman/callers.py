"""Who is calling: from the context of a request to the activation it claims to be, perhaps dead; and which call it is.

Resolved anew for each request. The first claim that is present decides; one that is present and does not hold makes a
dead caller, and nothing falls through to a weaker claim. Tool arguments, client info and other headers never count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from steersman import codex
from steersman.errors import ToolError
from steersman.registry import Activation, AgentRegistry, Binding

CREDENTIAL_META: Final = "steersman/agent"
CREDENTIAL_HEADER: Final = "Steersman-Agent"

_CALL_KEYS: Final = ("steersman/idempotencyKey", "claudecode/toolUseId", "callId")
"""Where hosts put their own id of a call, in the order of preference."""


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
    if binding.host.profile == "codex":
        thread = codex.identify(claim.meta)
        entered = registry.enter_profiled(binding, thread.agent_id, thread.owner_id) if thread is not None else None
        return entered or registry.nobody
    if registry.hosted(binding):
        # The host knows identities, so a call without one is a forgotten credential and must not make a root.
        return registry.nobody
    return registry.enter_root(binding)


def call_key(scope: str, meta: Mapping[str, Any]) -> str | None:
    """What tells a call from others of its agent, and its retry from a second call: the same for both.

    Args:
        scope: the tool or method; equal ids of two of them are different calls.
        meta: the request's `_meta`.

    Raises:
        ToolError: `INVALID_ARGUMENTS` for a key of our own name that is no text.
    """
    for field_name in _CALL_KEYS:
        key = meta.get(field_name)
        if isinstance(key, str) and key:
            hashed = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
            return f"{scope} {field_name} {hashed}"
    if _CALL_KEYS[0] in meta:
        reason = f"at _meta, found a {_CALL_KEYS[0]} that is empty or no text; allowed is a text."
        raise ToolError("INVALID_ARGUMENTS", reason=reason)
    return None


def _by_credential(registry: AgentRegistry, binding: Binding, credential: object) -> Activation:
    found = registry.by_credential(binding.realm, credential) if isinstance(credential, str) else None
    return found or registry.nobody
