"""The process that is the one server of a state directory: in the foreground, or in the background."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from steersman.serving.state_files import Lock, StateDirError, StateFiles, holder
from steersman.settings import CommandError, Source

if TYPE_CHECKING:
    import socket

    from steersman.serving.shared import ServerOptions

TURN_SECONDS: Final = 10.0
TURN_EVERY: Final = 0.02
"""How long, and how often, a server that finds the lock held looks whether its holder listens, or is gone."""

Options = Mapping[str, str | None]


def run_in_background(options: Options, environ: Mapping[str, str]) -> int:
    """Be a server that a pipe started: say one line on stdout once it listens, log to a file, and end when idle.

    Returns:
        The exit code: 0 also if another server listens already.
    """
    source = Source(options, environ)
    settings, http, idle = source.settings(), source.http_settings(), source.idle()
    files = StateFiles(settings.state_dir)
    try:
        lock = _take_turn(files)
        if lock is None:
            _answer({"taken": True})
            return 0
        listener = files.listen()
        from steersman.logs import configure
        from steersman.serving.shared import ServerOptions

        configure(settings.log_level, files.log)
    except CommandError as error:
        _answer({"error": str(error)})
        return 1
    options_of_server = ServerOptions(http, settings.host, any_port=True, idle=idle)
    return _run(files, lock, listener, options_of_server, listening=lambda: _answer({"listening": True}))


def run_in_foreground(options: Options, environ: Mapping[str, str], *, no_auth: bool) -> int:
    """Be the server until a signal, or `steersman stop`, ends it.

    Raises:
        CommandError: another one runs, or the state directory or an address cannot be used.
    """
    source = Source(options, environ)
    settings, http = source.settings(), source.http_settings()
    files = StateFiles(settings.state_dir)
    lock = Lock.take(files)
    if lock is None:
        raise StateDirError(
            f"A Steersman server runs for {files.directory} already: {holder(files)} holds {files.lock}. "
            "End it by `steersman stop`, or choose another directory by --state-dir."
        )
    listener = files.listen()
    from steersman.logs import configure
    from steersman.serving.shared import ServerOptions

    configure(settings.log_level)
    return _run(files, lock, listener, ServerOptions(http, settings.host, no_auth=no_auth), say=_say)


def _run(
    files: StateFiles,
    lock: Lock,
    listener: socket.socket,
    options: ServerOptions,
    *,
    say: Callable[[str], None] = lambda text: None,
    listening: Callable[[], None] = lambda: None,
) -> int:
    import anyio
    from anyio.abc import SocketListener, TaskStatus

    from steersman.serving.shared import SharedServer
    from steersman.serving.signals import end_on_signal

    server = SharedServer(files, options, say=say)
    failure: CommandError | None = None

    async def run() -> None:
        nonlocal failure

        async def serve(*, task_status: TaskStatus[None]) -> None:
            nonlocal failure
            try:
                await server.run(await SocketListener.from_socket(listener), task_status=task_status)
            except CommandError as error:
                # Raised outside the task group, which would wrap it.
                failure = error
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            await group.start(end_on_signal, lambda: server.end("It was ended by a signal."))
            await group.start(serve)
            listening()

    try:
        anyio.run(run)
    finally:
        files.clear()
        lock.release()
    if failure is not None:
        raise failure
    return 0


def _take_turn(files: StateFiles) -> Lock | None:
    """The lock; none if another server has it and listens.

    Raises:
        StateDirError: another one has it and does not listen.
    """
    deadline = time.monotonic() + TURN_SECONDS
    while (lock := Lock.take(files)) is None:
        connection = files.connect()
        if connection is not None:
            connection.close()
            return None
        if time.monotonic() > deadline:
            raise StateDirError(
                f"{holder(files)} holds {files.lock}, and does not listen on {files.socket}. End that process, or "
                "choose another directory by --state-dir."
            )
        time.sleep(TURN_EVERY)
    return lock


def _answer(line: Mapping[str, object]) -> None:
    """Say the one line to who started us; from then on stdout is nowhere."""
    with suppress(OSError):  # it may not have waited
        os.write(1, json.dumps(line).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
