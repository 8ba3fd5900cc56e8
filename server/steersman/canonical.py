"""Canonical JSON, in which the contract and the calls are digested."""

from __future__ import annotations

import hashlib
import json


def compact(value: object) -> str:
    """JSON without white space, raw Unicode, keys in the order they stand."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def canonical(value: object) -> str:
    """JSON with sorted keys, without white space, raw Unicode: equal values give equal texts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def digest(value: object) -> str:
    """The SHA-256, in hexadecimal, of the canonical JSON's UTF-8 bytes."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
