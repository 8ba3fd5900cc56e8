"""What a command line makes of this process: a pipe, the one server of a state directory, or a server alone.

Nothing is imported before it is needed: hosts wait for a pipe to start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.services import Services
    from steersman.settings import Settings

Options = Mapping[str, str | None]
"""Values by the name of their option without its dashes; None where it was not given."""


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
    """Serve MCP on stdio until the host is gone: as a pipe to the one server, or alone."""
    from steersman.settings import Source

    source = Source(options, os.environ)
    settings = source.settings()
    source.idle()
    if not (settings.standalone or sys.platform == "win32"):
        from steersman.serving.pipe import run_pipe

        return run_pipe(options, os.environ)
    services = _services(settings)

    import anyio

    from steersman.serving.stdio import serve_stdio

    anyio.run(lambda: serve_stdio(services, host=settings.host))
    return 0


def run_in_background(options: Options) -> int:
    """Be the one server of a state directory, which a pipe started."""
    from steersman.serving.running import run_in_background

    return run_in_background(options, os.environ)


def run_serve(options: Options, *, no_auth: bool) -> int:
    """Be the one server of a state directory, or a server alone over HTTP, until a signal ends it."""
    from steersman.settings import SettingsError, Source, is_loopback

    source = Source(options, os.environ)
    settings, http = source.settings(), source.http_settings()
    profile = settings.host.profile
    if profile is not None and not no_auth:
        raise SettingsError(
            f"--host-profile: found {profile!r}; over HTTP a host profile belongs to the host's token. "
            f"Make one by `steersman token new LABEL --host-profile {profile}`."
        )
    if no_auth and not is_loopback(http.host):
        raise SettingsError(
            f"--no-auth: found with --host {http.host!a}; allowed only on a loopback address, because everybody who "
            "reaches the server could speak for you."
        )
    if not (settings.standalone or sys.platform == "win32"):
        from steersman.serving.running import run_in_foreground

        return run_in_foreground(options, os.environ, no_auth=no_auth)

    import anyio

    from steersman.serving.http import HttpServer, make_app, serve_http
    from steersman.serving.state_files import StateFiles

    services = _services(settings)
    app = make_app(
        services,
        host=http.host,
        port=http.port,
        no_auth=no_auth,
        allow_hosts=http.allow_hosts,
        defaults=settings.host,
    )

    async def serve() -> None:
        if not no_auth:
            StateFiles(settings.state_dir).make()
            path = await services.tokens.ensure_first(settings.state_dir)
            sys.stderr.write(f"The bearer token for this machine's own tools is in {path}\n")
        await serve_http(HttpServer(app, host=http.host, port=http.port), services)

    anyio.run(serve)
    return 0


def _services(settings: Settings) -> Services:
    from steersman.logs import configure
    from steersman.providers.elicitation import ElicitationProvider
    from steersman.services import make_services

    configure(settings.log_level)
    return make_services([ElicitationProvider()])
