"""What outlives a server: whatever was done, one that comes after it knows the same."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steersman.services import make_services
from steersman.storage.journal import open_journal
from tests.clock import ManualClock
from tests.requirements import requirement
from tests.storage.folds import crashed, differences, folds
from tests.storage.life import NAMES, Dialog, Life, Step

number = st.integers(0, 11)
steps = st.lists(st.tuples(st.sampled_from(NAMES), number, number, number), min_size=5, max_size=60)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an empty journal: making the tables takes longer than all the rest."""

    async def make() -> None:
        async with open_journal(directory):
            pass

    directory = tmp_path_factory.mktemp("empty")
    anyio.run(make)
    return directory


@requirement("journal:rebuilt")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=steps, crashes=st.sets(st.integers(0, 60), max_size=4))
def test_rebuilt_folds_equal_live_ones_at_any_moment(empty: Path, steps: Sequence[Step], crashes: set[int]) -> None:
    async def live() -> None:
        with TemporaryDirectory() as name, anyio.fail_after(60):
            directory = Path(name)
            shutil.copytree(empty, directory, dirs_exist_ok=True)
            clock, dialog = ManualClock(), Dialog()
            async with open_journal(directory, clock=clock) as journal:
                services = make_services([dialog], clock=clock, journal=journal)
                async with anyio.create_task_group() as group:
                    life = Life(services, dialog, clock, group)
                    for count, step in enumerate(steps):
                        await life.take(step)
                        if count in crashes or count == len(steps) - 1:
                            await journal.append()
                            async with crashed(directory, clock, [dialog]) as after:
                                assert not differences(folds(services), folds(after))
                    group.cancel_scope.cancel()

    anyio.run(live)
