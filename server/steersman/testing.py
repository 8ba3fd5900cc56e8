"""For a host's own tests: is the tool list that my model sees still the frozen one?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from steersman.contract.differences import contract_differences


def assert_contract(tools: Iterable[Mapping[str, Any] | BaseModel]) -> None:
    """Fail unless `tools`, as a client's `tools/list` returned them, are the frozen contract.

    Args:
        tools: tool objects, as mappings or as the SDK's models.

    Raises:
        AssertionError: naming every place that differs.
    """
    listed = [
        tool.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(tool, BaseModel) else tool
        for tool in tools
    ]
    differences = contract_differences(listed)
    if differences:
        raise AssertionError(
            "tools/list is not the frozen contract:\n" + "\n".join(f"- {line}" for line in differences)
        )
