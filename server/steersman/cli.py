"""The entry point of the `steersman` command.

Hosts wait for our tools, and a model request that starts before them goes without. So nothing is imported before it is
needed, and what hosts start, which serves MCP on stdio, imports no command line parser.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from steersman.processes import Options, guarded, run_in_background, run_stdio

_PLAIN: Final = ("state-dir", "providers", "plan-mode", "ask-timeout", "host-profile", "log-level", "idle")
_FLAGS: Final = ("standalone",)
_BACKGROUND: Final = ("state-dir", "log-level", "host", "port", "allow-host", "idle")


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    arguments = sys.argv[1:]
    if arguments[:2] == ["serve", "--background"]:
        found = read_options(arguments[2:], _BACKGROUND)
        if found is not None:
            sys.exit(guarded(lambda: run_in_background(found)))
    options = read_options(arguments, _PLAIN, _FLAGS)
    if options is not None:
        sys.exit(guarded(lambda: run_stdio(options)))
    from steersman.commands import run

    sys.exit(run(arguments))


def read_options(arguments: Sequence[str], named: Sequence[str], flags: Sequence[str] = ()) -> Options | None:
    """The values of options as hosts write them, `--name value` or `--name=value`; none if anything else is there."""
    found: dict[str, str | None] = {}
    rest = iter(arguments)
    for argument in rest:
        name, given, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name in found:
            return None
        if name in flags and not given:
            found[name] = "1"
        elif name in named and (given or (value := next(rest, "-"))[:1] != "-"):
            found[name] = value
        else:
            return None
    return found
