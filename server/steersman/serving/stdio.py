"""Serving MCP over the pipe on which a host started us."""

from __future__ import annotations

import os
import signal
import sys
import threading
from io import TextIOWrapper
from typing import Final, NoReturn

import anyio
from anyio.abc import TaskStatus

from steersman.server import make_server, stream_lifespan
from steersman.services import Services
from steersman.serving.lines import json_line_streams
from steersman.settings import HostSettings
from steersman.tokens import LOCAL_REALM

ANSWER_SECONDS: Final = 0.2
"""How long the answers to withdrawn questions are given to go out."""
END_SECONDS: Final = 0.4
"""How long the process may live on once its host closed the pipe."""


async def serve_stdio(services: Services, *, host: HostSettings) -> None:
    """Serve the host behind stdin and stdout until it closes the pipe, or SIGINT or SIGTERM ends the process.

    It owns the process: on a signal, and if something hangs after the pipe was closed, it exits with code 0 by itself,
    because a thread that reads stdin can be neither joined nor interrupted.

    Args:
        services: what stands behind the tools.
        host: what holds for the host.
    """
    if sys.stdin.isatty():
        sys.stderr.write("Steersman speaks MCP on stdin and stdout, for a host to start. See `steersman --help`.\n")
        sys.stderr.flush()
    server = make_server(stream_lifespan(services, realm=LOCAL_REALM, host=host))

    async def end_on_signal(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                waiting = _calls_are_open(services)
                services.withdraw_all()
                if waiting:
                    await anyio.sleep(ANSWER_SECONDS)
                _exit()

    try:
        async with anyio.create_task_group() as group:
            await group.start(end_on_signal)
            stdin = TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
            async with json_line_streams(anyio.wrap_file(stdin)) as (read, write):
                try:
                    await server.run(read, write, server.create_initialization_options())
                finally:
                    watchdog = threading.Timer(END_SECONDS, _exit)
                    watchdog.daemon = True
                    watchdog.start()
            group.cancel_scope.cancel()
    except* BrokenPipeError:
        # The host is gone, and with it whoever could be told, also by the interpreter on its way out.
        _exit()


def _calls_are_open(services: Services) -> bool:
    live = (agent.current for agent in services.registry.list(LOCAL_REALM))
    return any(activation is not None and activation.open_calls for activation in live)


def _exit() -> NoReturn:
    sys.stderr.flush()
    os._exit(0)
