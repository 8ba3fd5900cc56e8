"""The journal that outlives the process: events become durable in batches, in the order in which they came."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus
from sqlalchemy import Connection, Engine

from steersman.clock import Clock, SystemClock
from steersman.errors import ToolError
from steersman.journal import Event, Journal, Restored
from steersman.storage import history
from steersman.storage.failures import StorageError, explain
from steersman.storage.history import HistoryEntry
from steersman.storage.opening import check, make_engine, migrate, prepare_file, write_ahead
from steersman.storage.reading import read_facts, read_newest_position, read_sessions
from steersman.storage.writing import Timed, write_batch

FAREWELL_SECONDS: Final = 0.5
"""How long a server whose journal failed can still tell its callers so, before it is taken down."""

_CLOSED: Final = "it is going away, and the journal is closed already."

T = TypeVar("T")


class SqlJournal(Journal):
    """A journal in one SQLite file. `open_journal` makes one.

    A task that somebody owns has to be in `run`: whatever waits when it looks becomes durable as one transaction, and
    what comes meanwhile is the next one. Once a transaction fails, nothing is acknowledged any more.
    """

    def __init__(self, engine: Engine, connection: Connection, path: Path, clock: Clock) -> None:
        super().__init__()
        self.path = path
        self._engine = engine
        self._connection = connection
        self._clock = clock
        self._thread = anyio.CapacityLimiter(1)
        self._waiting = _Batch()
        self._writing: _Batch | None = None
        self._arrived = anyio.Event()
        self._closing = False
        self._running = False
        self._over = anyio.Event()
        self._refusal: str | None = None
        self._sessions = read_sessions(connection)
        self._position = read_newest_position(connection)
        self._facts: list[Restored] | None = list(read_facts(connection, self._sessions))

    @property
    def refusal(self) -> str | None:
        """Why nothing becomes durable any more, in whole sentences; none while everything does."""
        return self._refusal

    # --- what folds and callers see ----------------------------------------------------------------------------------

    def _stored(self) -> Iterable[Restored]:
        facts, self._facts = self._facts or (), None
        return facts

    def _store(self, events: Sequence[Event]) -> Awaitable[None]:
        """What waiters get raises `ToolError`, `SERVER_UNAVAILABLE`, for what did not become durable."""
        if self._refusal is not None:
            return _Batch(self._refusal)
        if events:
            at = self._clock.wall_time()
            self._waiting.events += [(event, at) for event in events]
            self._arrived.set()
        if self._waiting.events:
            return self._waiting
        return self._writing or _DURABLE

    # --- the writer --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make durable what is appended, until `aclose` or cancellation; then what waits, and end.

        Raises:
            StorageError: a transaction failed. What it held, and all that came and comes after, is refused.
        """
        self._running = True
        try:
            try:
                while not self._closing:
                    await self._arrived.wait()
                    with anyio.CancelScope(shield=True):
                        await self._drain()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._drain()
        finally:
            self._refuse(_CLOSED)
            self._over.set()

    async def aclose(self) -> None:
        """Have `run` end once everything that waits is durable, wait for that, and let go of the file.

        Raises:
            StorageError: what is left of the file could not be put in order. Everything that was acknowledged is in it.
        """
        self._closing = True
        self._arrived.set()
        if self._running:
            await self._over.wait()
        self._refuse(_CLOSED)

        def close() -> None:
            self._connection.close()
            self._engine.dispose()

        with anyio.CancelScope(shield=True):
            await self._work(close)

    async def _drain(self) -> None:
        while self._waiting.events and self._refusal is None:
            batch, self._waiting = self._waiting, _Batch()
            self._writing = batch
            try:
                await self._in_thread(partial(self._commit, batch.events))
            except Exception as fault:  # noqa: BLE001 - whatever it is, this is where acknowledging ends
                failure = explain(self.path, fault)
                batch.refuse(_say(failure))
                self._refuse(_say(failure))
                raise failure from None
            finally:
                self._writing = None
            batch.settle()
        if not self._closing:
            self._arrived = anyio.Event()

    def _commit(self, events: Sequence[Timed]) -> None:
        with self._connection.begin():
            self._position = write_batch(self._connection, self._sessions, self._position, events)

    def _refuse(self, reason: str) -> None:
        if self._refusal is None:
            self._refusal = reason
            self._waiting.refuse(reason)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self._thread)

    async def _work(self, work: Callable[[], T]) -> T:
        try:
            return await self._in_thread(work)
        except Exception as fault:  # noqa: BLE001 - said in words of ours
            raise explain(self.path, fault) from None

    # --- the past ----------------------------------------------------------------------------------------------------

    async def history(
        self, realm: str, agent_id: str | None = None, *, limit: int = history.DEFAULT_LIMIT
    ) -> list[HistoryEntry]:
        """The newest events of a realm, or of one agent in it; newest last, with those that were just appended.

        Raises:
            StorageError: the file cannot be read.
            ToolError: `SERVER_UNAVAILABLE`, because the journal failed or is closed.
        """
        await self.append()

        def read() -> list[HistoryEntry]:
            with self._connection.begin():
                return history.read_history(self._connection, realm, agent_id, limit=limit)

        return await self._work(read)

    async def forget(self, older_than: float) -> None:
        """Delete what has been over for that many seconds, and take it out of the files.

        What the folds of a later process are rebuilt from stays, but for the outcomes of calls that are so old: such a
        call is not known again. No fact becomes durable meanwhile.

        Raises: as `history`; if the files could not be put in order, what was deleted may still be found in them.
        """
        await self.append()
        before = self._clock.wall_time() - older_than

        def delete() -> None:
            with self._connection.begin():
                history.forget(self._connection, self._sessions, before)
            driver = self._connection.connection.driver_connection
            assert driver is not None
            # Each step of it gives one page back, and it has no rows: only a script is stepped to its end.
            driver.executescript("PRAGMA incremental_vacuum")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        await self._work(delete)


class _Batch:
    """Events that become durable together, and what is waited for until they are."""

    def __init__(self, refusal: str | None = None) -> None:
        self.events: list[Timed] = []
        self._refusal = refusal
        self._settled = anyio.Event()
        if refusal is not None:
            self._settled.set()

    def settle(self) -> None:
        self._settled.set()

    def refuse(self, reason: str) -> None:
        self._refusal = reason
        self._settled.set()

    def __await__(self) -> Generator[Any, None, None]:
        if not self._settled.is_set():
            yield from self._settled.wait().__await__()
        if self._refusal is not None:
            raise ToolError("SERVER_UNAVAILABLE", reason=self._refusal)


class _Durable:
    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_DURABLE: Final = _Durable()


def _say(failure: StorageError) -> str:
    return f"{failure} Whether what was called for took effect is not known."


@asynccontextmanager
async def open_journal(state_dir: Path, *, clock: Clock | None = None) -> AsyncGenerator[SqlJournal]:
    """The journal of a state directory, with its writer at work; at the end everything that waits is made durable.

    Args:
        state_dir: made with mode 0700 if it does not exist. One process at a time holds the journal in it.
        clock: what the events' times are read from; the machine's, if omitted.

    Raises:
        StorageError: the journal cannot be opened; or it failed while it was in use, and then the block is cancelled
            half a second later.
    """
    journal = await to_thread.run_sync(lambda: load_journal(state_dir, clock or SystemClock()))
    failure: StorageError | None = None
    fault: Exception | None = None
    async with anyio.create_task_group() as group:

        async def write(*, task_status: TaskStatus[None]) -> None:
            nonlocal failure
            task_status.started()
            # What is cleaned up when the block is cancelled still becomes durable.
            with anyio.CancelScope(shield=True):
                try:
                    await journal.run()
                except StorageError as error:
                    failure = error
            if failure is not None:
                with anyio.move_on_after(FAREWELL_SECONDS):
                    await closing.wait()
                group.cancel_scope.cancel()

        closing = anyio.Event()
        await group.start(write)
        try:
            yield journal
        except Exception as error:  # noqa: BLE001 - raised again outside the task group, which would wrap it
            fault = error
        finally:
            closing.set()
            with anyio.CancelScope(shield=True):
                try:
                    await journal.aclose()
                except StorageError as error:
                    failure = failure or error
    if failure is not None:
        raise failure from fault
    if fault is not None:
        raise fault


def load_journal(state_dir: Path, clock: Clock) -> SqlJournal:
    """Open the file, bring its schema up to date, and read what the folds are rebuilt from. Raises `StorageError`."""
    path = prepare_file(state_dir)
    log = path.with_name(path.name + "-wal")
    try:
        ended_cleanly = not log.exists() or log.stat().st_size == 0
        engine = make_engine(path)
        try:
            connection = engine.connect()
            with connection.begin():
                check(connection, path, ended_cleanly=ended_cleanly)
                migrate(connection, path)
            write_ahead(connection)
            with connection.begin():
                return SqlJournal(engine, connection, path, clock)
        except BaseException:
            engine.dispose()
            raise
    except Exception as fault:  # noqa: BLE001 - said in words of ours
        raise explain(path, fault) from None
