"""The human at the host's dialog, played by a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import anyio
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult


class Dialog:
    """One form that the host shows. The call behind it waits until the test answers or the form is withdrawn."""

    def __init__(self, params: ElicitRequestFormParams) -> None:
        self.message = params.message
        self.schema = params.requested_schema
        self.withdrawn = anyio.Event()
        self._answered = anyio.Event()
        self._result = ElicitResult(action="cancel")

    @property
    def fields(self) -> dict[str, Any]:
        return self.schema["properties"]

    def accept(self, content: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._settle("accept", {**(content or {}), **more})

    def decline(self) -> None:
        self._settle("decline", None)

    def cancel(self) -> None:
        self._settle("cancel", None)

    def _settle(self, action: Literal["accept", "decline", "cancel"], content: dict[str, Any] | None) -> None:
        self._result = ElicitResult(action=action, content=content)
        self._answered.set()

    async def result(self) -> ElicitResult:
        try:
            await self._answered.wait()
        except BaseException:
            self.withdrawn.set()
            raise
        return self._result


class Human:
    """An elicitation callback that hands every form to the test, in the order of arrival.

    Args:
        always: what to accept every form with, for tests that do not look at it.
    """

    def __init__(self, always: Mapping[str, Any] | None = None) -> None:
        self.dialogs: list[Dialog] = []
        self._always = always
        self._seen = 0
        self._arrived = anyio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        dialog = Dialog(params)
        self.dialogs.append(dialog)
        if self._always is not None:
            dialog.accept(self._always)
        self._arrived.set()
        return await dialog.result()

    async def next(self) -> Dialog:
        """The next form that the host shows."""
        while len(self.dialogs) <= self._seen:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        self._seen += 1
        return self.dialogs[self._seen - 1]
