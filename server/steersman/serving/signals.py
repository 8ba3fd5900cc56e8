"""How a process that serves is ended from outside."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import anyio
from anyio.abc import TaskStatus


async def end_on_signal(end: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    """Call `end` on the first SIGINT or SIGTERM; a second one ends the process at once."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        ending = False
        async for received in signals:
            if ending:
                _exit_at_once(received)
            ending = True
            end()


def _exit_at_once(received: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(128 + received)
