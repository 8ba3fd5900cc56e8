"""JSON Schema 2020-12 as tests use it, with types the checker can follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator


class JsonSchema:
    """One schema: does a value fit, and what does not?"""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        Draft202012Validator.check_schema(dict(schema))
        self._validator = Draft202012Validator(dict(schema))

    def accepts(self, value: object) -> bool:
        return not self.faults(value)

    def faults(self, value: object) -> list[str]:
        """What does not fit, a line each; nothing if the value fits."""
        errors = cast("Any", self._validator).iter_errors(value)
        return [f"{error.json_path}: {error.message}" for error in errors]
