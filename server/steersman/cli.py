"""The `steersman` command: its entry point, and what serves.

Hosts wait for our tools, and a model request that starts before them goes without. So nothing is imported before it is
needed, and the bare command, which serves MCP on stdio, imports no command line parser.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.questions.requests import Provider
    from steersman.services import Services
    from steersman.settings import Settings

Options = Mapping[str, str | None]
"""Values by the name of their option without its dashes; None where it was not given."""


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    if sys.argv[1:]:
        from steersman.commands import run

        sys.exit(run(sys.argv[1:]))
    sys.exit(guarded(lambda: run_stdio({})))


def guarded(command: Callable[[], int]) -> int:
    """Run a command, and say on stderr what it could not do.

    Returns:
        Its exit code; 2 for a value of a wrong form, 1 for anything else it could not do.
    """
    from steersman.settings import CommandError

    try:
        return command()
    except CommandError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except Exception as fault:  # noqa: BLE001 - the text of a fault may quote an answer: only its kind is shown
        import json

        from steersman.logs import describe

        return complain(f"a fault of ours: {json.dumps(describe(fault))}", 1)


def complain(text: str, exit_code: int) -> int:
    sys.stderr.write(f"steersman: {text}\n")
    return exit_code


def run_stdio(options: Options) -> int:
    """Serve MCP on stdio until the host is gone."""
    from steersman.settings import Source

    settings = Source(options, os.environ).settings()
    services = _services(settings)

    import anyio

    from steersman.serving.stdio import serve_stdio

    anyio.run(lambda: serve_stdio(services, host=settings.host))
    return 0


def run_serve(options: Options, *, no_auth: bool) -> int:
    """Serve MCP over HTTP until a signal ends it."""
    from steersman.settings import SettingsError, Source

    source = Source(options, os.environ)
    settings, http = source.settings(), source.http_settings()
    profile = settings.host.profile
    if profile is not None and not no_auth:
        raise SettingsError(
            f"--host-profile: found {profile!r}; over HTTP a host profile belongs to the host's token. "
            f"Make one by `steersman token new LABEL --host-profile {profile}`."
        )

    import anyio

    from steersman.serving.http import is_loopback, make_app, serve_http
    from steersman.tokens import TokenStore

    if no_auth and not is_loopback(http.host):
        raise SettingsError(
            f"--no-auth: found with --host {http.host!a}; allowed only on a loopback address, because everybody who "
            "reaches the server could speak for you."
        )
    services = _services(settings)
    tokens = None if no_auth else TokenStore(settings.state_dir)
    app = make_app(
        services,
        tokens=tokens,
        host=http.host,
        port=http.port,
        allow_hosts=http.allow_hosts,
        defaults=settings.host,
    )
    if tokens is not None:
        sys.stderr.write(f"The bearer token for this machine's own tools is in {tokens.ensure_first()}\n")
    anyio.run(lambda: serve_http(app, services, host=http.host, port=http.port))
    return 0


def _services(settings: Settings) -> Services:
    from steersman.logs import configure
    from steersman.providers.elicitation import ElicitationProvider
    from steersman.services import make_services

    configure(settings.log_level)
    known: Mapping[str, Provider] = {"elicitation": ElicitationProvider()}
    return make_services(list(known.values()))
