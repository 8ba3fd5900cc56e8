"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.world import TRANSPORTS, Connect, Transport, World, open_world


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests start away from the user's own state; a server in the background ends soon after its pipes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERSMAN_STATE_DIR", str(tmp_path_factory.mktemp("state") / "steersman"))
        patch.setenv("STEERSMAN_IDLE", "1")
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=TRANSPORTS, ids=lambda transport: transport.name)
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


@pytest.fixture
def connect(transport: Transport, tmp_path: Path) -> Connect:
    """Start a server over the transport at hand: `async with connect(...) as world`. Options: `open_world`."""

    def start(**options: Any) -> AbstractAsyncContextManager[World]:
        return open_world(transport, tmp_path / "state", **options)

    return start
