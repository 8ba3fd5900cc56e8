"""What a JSON value is, for the type checker: the one place where untyped JSON becomes something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
