"""Starting the server of a state directory in the background.

It is nobody's child, has a session of its own, and keeps of the environment only what it needs. Its standard output is
the channel on which it says one line once it listens, or why it does not.

The pipe imports this, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from steersman.serving.state_files import StateFiles, unusable
from steersman.settings import Source

START_SECONDS: Final = 30.0
"""How long a server may take until it listens, and until it answers."""

_KEPT: Final = frozenset(
    (
        *("HOME", "PATH", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"),
        *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "BROWSER", "VIRTUAL_ENV"),
        *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
        *("PYTHONUTF8",),
    )
)
_KEPT_PREFIXES: Final = ("LC_", "XDG_")

Start = Callable[[], int]
"""Starts a server, and returns the descriptor on which it says its one line."""


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a server in the background keeps of the environment of the host that happened to start it."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    if environ.get("PYTHONPATH"):
        # It works in another directory.
        places = environ["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in places)
    return kept


def server_command(options: Mapping[str, str]) -> list[str]:
    """The command that serves in the background, with options by their names."""
    given = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", "steersman", "serve", "--background", *given]


def starter(files: StateFiles, source: Source) -> Start:
    """What starts the server of a state directory, told what is to be told to it.

    Raises:
        SettingsError: for the first of these options that has a wrong form.
    """
    # Refused here, where somebody reads it.
    source.http_settings()
    source.idle()
    source.log_level()
    passed_on = source.passed_on("log-level", "host", "port", "allow-host", "idle")
    command = server_command({"state-dir": str(files.directory), **passed_on})
    return lambda: start_in_background(files, command, source.environ)


def start_in_background(files: StateFiles, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Start a server process that outlives this one.

    Returns:
        A descriptor to read its one line from: `{"listening": true}`, `{"taken": true}` if another one listens, or
        `{"error": text}`.

    Raises:
        StateDirError: the directory cannot be used.
    """
    files.make()
    try:
        log = os.open(files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(files.log, "written", error) from None
    said, says = os.pipe()
    child = os.fork()
    if not child:
        _detach(files, command, server_environment(environ), says, log)
    os.close(says)
    os.close(log)
    os.waitpid(child, 0)
    return said


def _detach(files: StateFiles, command: Sequence[str], environ: Mapping[str, str], says: int, log: int) -> NoReturn:
    """In the child: become nobody's child and the server."""
    import fcntl

    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir(files.directory)
        os.umask(0o077)
        # First above the standard ones, so that none is overwritten before it was used.
        says = fcntl.fcntl(says, fcntl.F_DUPFD, 10)
        sources = [fcntl.fcntl(os.open(os.devnull, os.O_RDONLY), fcntl.F_DUPFD, 10), says]
        sources.append(fcntl.fcntl(log, fcntl.F_DUPFD, 10))
        for target, source in enumerate(sources):
            os.dup2(source, target)
        says = 1
        os.closerange(3, _most_files())
        os.execve(command[0], list(command), dict(environ))
    except BaseException as error:  # noqa: BLE001 - whatever it is, this copy of the process must not live on
        why = f"The server could not be started: {error}."
        os.write(says, json.dumps({"error": why}).encode() + b"\n")
    os._exit(1)


def _most_files() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, 65_536) if soft > 0 else 65_536
