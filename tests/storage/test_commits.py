"""What is acknowledged is on the disk: transactions that are shared, and what happens when one fails."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from steersman.errors import ToolError
from steersman.journal import TokenMade
from steersman.storage import journal as store
from steersman.storage.failures import StorageError
from steersman.storage.journal import SqlJournal, open_journal
from tests.clock import ManualClock
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def fact(number: int, *, size: int = 0) -> TokenMade:
    return TokenMade("local", str(number), f"{number}".ljust(size, "x"), None, 0.0, f"hash {number}")


def stored(state_dir: Path) -> list[str]:
    """The ids of the tokens that a process finds which comes after one that is killed now: read from copied bytes."""
    copy = state_dir / "copy"
    copy.mkdir()
    for path in state_dir.glob("journal.sqlite3*"):
        (copy / path.name).write_bytes(path.read_bytes())
    with sqlite3.connect(copy / "journal.sqlite3") as connection:
        rows = connection.execute("SELECT token_id FROM tokens ORDER BY position").fetchall()
    connection.close()
    for path in copy.iterdir():
        path.unlink()
    copy.rmdir()
    return [row[0] for row in rows]


class Gate:
    """Holds the writer's thread at the door of each transaction, and notes what it carries through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.arrivals = 0
        self._changed = threading.Condition()
        self._let_in = 0
        write = store.write_batch

        def held(connection: Any, sessions: Any, position: int, events: Sequence[Any]) -> int:
            with self._changed:
                self.arrivals += 1
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: self._let_in > 0, timeout=5)
                self._let_in -= 1
            self.batches.append([event.token_id for event, _ in events])
            return write(connection, sessions, position, events)

        monkeypatch.setattr(store, "write_batch", held)

    def open(self, times: int = 1) -> None:
        with self._changed:
            self._let_in += times
            self._changed.notify_all()

    async def arrived(self, count: int) -> None:
        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self.arrivals >= count, timeout=5)

        await anyio.to_thread.run_sync(wait)


@requirement("journal:durable")
async def test_what_comes_while_a_transaction_runs_is_the_next_one_whole_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    told: list[int] = []
    with anyio.fail_after(5):
        async with open_journal(tmp_path, clock=ManualClock()) as journal, anyio.create_task_group() as group:

            async def tell(number: int) -> None:
                await journal.append(fact(number))
                told.append(number)

            group.start_soon(tell, 0)
            await gate.arrived(1)
            for number in range(1, 6):
                group.start_soon(tell, number)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            gate.open()
            await gate.arrived(2)
            assert told == [0]
            assert stored(tmp_path) == ["0"]
            gate.open()
    assert gate.batches == [["0"], ["1", "2", "3", "4", "5"]]
    assert sorted(told) == [0, 1, 2, 3, 4, 5]
    assert stored(tmp_path) == ["0", "1", "2", "3", "4", "5"]


@requirement("journal:durable")
async def test_waiting_without_a_fact_waits_for_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    order: list[str] = []
    with anyio.fail_after(5):
        async with open_journal(tmp_path, clock=ManualClock()) as journal, anyio.create_task_group() as group:
            journal.append(fact(0))  # pyright: ignore[reportUnusedCoroutine] - nobody has to wait
            await gate.arrived(1)

            async def wait() -> None:
                await journal.append()
                order.append("told")

            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            order.append("written")
            gate.open()
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            # Nothing waits: nothing is waited for.
            await journal.append()
    assert order == ["written", "told"]
    assert gate.batches == [["0"]]


@requirement("journal:durable")
async def test_a_fact_that_nobody_waits_for_becomes_durable_and_so_does_the_last_one(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            journal.append(fact(0))  # pyright: ignore[reportUnusedCoroutine] - that is the test
        assert stored(tmp_path) == ["0"]
        with anyio.CancelScope() as scope:
            async with open_journal(tmp_path, clock=ManualClock()) as journal:
                journal.append(fact(1))  # pyright: ignore[reportUnusedCoroutine]
                scope.cancel()
                await anyio.sleep_forever()
    assert stored(tmp_path) == ["0", "1"]


@requirement("journal:durable")
async def test_a_waiter_that_is_cancelled_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    told: list[int] = []
    with anyio.fail_after(5):
        async with open_journal(tmp_path, clock=ManualClock()) as journal, anyio.create_task_group() as group:
            cancelled = anyio.CancelScope()

            async def tell(number: int, scope: anyio.CancelScope) -> None:
                with scope:
                    await journal.append(fact(number))
                    told.append(number)

            group.start_soon(tell, 0, cancelled)
            group.start_soon(tell, 1, anyio.CancelScope())
            await gate.arrived(1)
            cancelled.cancel()
            gate.open(2)
    assert told == [1]
    assert stored(tmp_path) == ["0", "1"]


def pragma(journal: SqlJournal, text: str) -> Any:
    return vars(journal)["_connection"].connection.driver_connection.execute(f"PRAGMA {text}").fetchone()[0]


@requirement("journal:durable")
async def test_each_transaction_is_synced_to_the_disk(tmp_path: Path) -> None:
    async with open_journal(tmp_path, clock=ManualClock()) as journal:
        assert pragma(journal, "synchronous") == 2
        assert pragma(journal, "journal_mode") == "wal"


def fill_up(journal: SqlJournal) -> None:
    """From here on the file may not grow, as on a disk that is full."""
    pragma(journal, f"max_page_count = {pragma(journal, 'page_count')}")


@requirement("journal:refuses")
async def test_a_transaction_that_fails_refuses_all_that_wait_and_all_that_come(tmp_path: Path) -> None:
    refused: list[tuple[str, str]] = []

    async def live() -> None:
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            await journal.append(fact(0))
            fill_up(journal)

            async def tell(name: str, number: int) -> None:
                try:
                    await journal.append(fact(number, size=100_000))
                except ToolError as error:
                    refused.append((name, f"{error.code} {error.reason}"))

            async with anyio.create_task_group() as group:
                group.start_soon(tell, "waits", 1)
                group.start_soon(tell, "waits", 2)
            await tell("comes later", 3)
            with pytest.raises(ToolError, match="SERVER_UNAVAILABLE"):
                await journal.append()
            assert journal.refusal is not None
            # The server is taken down although nothing here ends by itself.
            await anyio.sleep_forever()

    with anyio.fail_after(5):
        with pytest.raises(StorageError) as failure:
            await live()
    assert [name for name, _ in refused] == ["waits", "waits", "comes later"]
    for _, said in refused:
        assert said.startswith("SERVER_UNAVAILABLE")
        assert str(tmp_path / "journal.sqlite3") in said
        assert "Make room on its disk" in said
        assert "not known" in said
    assert str(tmp_path / "journal.sqlite3") in str(failure.value)
    assert stored(tmp_path) == ["0"]


@requirement("journal:refuses")
async def test_nothing_of_a_transaction_that_failed_is_there_and_the_next_process_goes_on(tmp_path: Path) -> None:

    async def live() -> None:
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            fill_up(journal)
            # The first of them alone would have had room.
            with pytest.raises(ToolError):
                await journal.append(fact(1), *(fact(number, size=50_000) for number in range(2, 9)))
            with pytest.raises(ToolError):
                await journal.append(fact(9))

    with anyio.fail_after(5):
        with pytest.raises(StorageError):
            await live()
        assert stored(tmp_path) == []
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            await journal.append(fact(10))
    assert stored(tmp_path) == ["10"]


@requirement("journal:refuses")
async def test_a_closed_journal_refuses(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            await journal.append(fact(0))
        with pytest.raises(ToolError, match="SERVER_UNAVAILABLE"):
            await journal.append(fact(1))
    assert stored(tmp_path) == ["0"]


@requirement("journal:refuses")
async def test_a_fault_of_ours_is_one_too_and_none_of_its_text_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise KeyError("secret words")

    monkeypatch.setattr(store, "write_batch", fail)

    async def live() -> None:
        async with open_journal(tmp_path, clock=ManualClock()) as journal:
            with pytest.raises(ToolError) as refused:
                await journal.append(fact(0))
            assert "secret" not in (refused.value.reason or "")

    with anyio.fail_after(5):
        with pytest.raises(StorageError, match="KeyError") as failure:
            await live()
        assert "secret" not in str(failure.value)
