"""What goes over the Unix socket: JSON lines, and control lines between them.

A line that a host wrote, or that is for it, passes as it is. A control line is our own: it begins with a byte that no
JSON text begins with. The first line of a connection, each way, is a control line, the hello.

The pipe imports this, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeGuard, cast

from steersman.json_values import is_list, is_object
from steersman.settings import HostSettings, SettingsError, Source

MARK: Final = b"\x1e"
READ_BYTES: Final = 256 * 1024
"""How much is read at a time."""

_RELEASE: Final = re.compile(r"(\d+(?:\.\d+)*)(?:(\.dev|a|b|rc|\.post)(\d+))?")
_STAGES: Final = (".dev", "a", "b", "rc", None, ".post")


class Lines:
    """Cuts what arrives into lines. What has no end yet is kept."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        first, *others = data.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        *between, rest = others
        lines = [b"".join(self._rest), *between]
        self._rest = [rest]
        return lines


def control_line(message: Mapping[str, object]) -> bytes:
    return MARK + json.dumps(message).encode() + b"\n"


def host_line(line: bytes) -> bytes:
    """A host's line as it goes to the server: never one of ours."""
    return (b" " + line if line.startswith(MARK) else line) + b"\n"


def read_control(line: bytes) -> Mapping[str, object] | None:
    """The message of a control line; none if the line is none, or is not one that can be read."""
    return read_object(line[len(MARK) :]) if line.startswith(MARK) else None


def read_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; none if it is anything else."""
    try:
        message: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if _is_dict(message) else None


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def host_as_json(host: HostSettings) -> Mapping[str, object]:
    """What holds for a host, as a pipe says it in its hello."""
    return {
        "host-profile": host.profile or "",
        "providers": list(host.providers),
        "plan-mode": host.plan_mode,
        "ask-timeout": host.ask_timeout,
    }


def host_from_json(said: object) -> HostSettings:
    """The settings that a hello names.

    Raises:
        SettingsError: for a value that this version does not know.
    """
    if not is_object(said):
        raise SettingsError("hello: found no settings of the host; allowed is an object.")
    providers, timeout = said.get("providers"), said.get("ask-timeout")
    options = {
        "host-profile": _text(said.get("host-profile")),
        "providers": ",".join(map(str, providers)) if is_list(providers) else None,
        "plan-mode": _text(said.get("plan-mode")),
        "ask-timeout": repr(timeout) if isinstance(timeout, int | float) else None,
    }
    return Source(options, {}).host()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def is_newer(version: str, other: str) -> bool:
    """Whether `version` came after `other`; of two that cannot be compared none did."""
    ours, theirs = _order(version), _order(other)
    return ours is not None and theirs is not None and ours > theirs


def _order(version: str) -> tuple[tuple[int, ...], int, int] | None:
    found = _RELEASE.fullmatch(version.partition("+")[0])
    if found is None or len(version) > 100:
        return None
    release = [int(part) for part in found[1].split(".")]
    while release and not release[-1]:
        release.pop()
    return tuple(release), _STAGES.index(cast("Any", found[2])), int(found[3] or 0)
