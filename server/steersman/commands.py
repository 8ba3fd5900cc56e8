"""The commands and options of `steersman`, as its user types them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

from steersman import __version__
from steersman.json_values import is_list, is_object
from steersman.processes import Options, complain, guarded, run_serve, run_stdio
from steersman.settings import DEFAULT_HOST, DEFAULT_PORT, SettingsError, Source, variable_of
from steersman.terminal import commands as terminal_commands
from steersman.terminal.connection import Connection, connect

_SERVER = Group("Server options", sort_key=1)
_HTTP = Group("HTTP options", sort_key=2)
_COMMANDS = Group("Commands", sort_key=3)
_SEE_HELP = "See `steersman --help`."
_SHARED = ("standalone", "state-dir", "providers", "plan-mode", "ask-timeout", "host-profile", "log-level", "idle")


def _option(metavar: str, help_text: str, group: Group = _SERVER) -> Parameter:
    return Parameter(help=help_text, group=group, metavar=metavar or None)


def _environment(*options: str) -> str:
    return "The same by environment: " + ", ".join(variable_of(option) for option in options) + "."


_STATE_DIR = _option("DIR", "Where the server and its journal are.")


app = App(
    name="steersman",
    version=f"steersman {__version__}",
    help="Lets agents ask their human and have plans reviewed, over MCP. Without a command it serves MCP on stdio.",
    group_commands=_COMMANDS,
    help_epilogue=_environment(*_SHARED),
    default_parameter=Parameter(negative=(), show_default=False),
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
)
token_app = App(name="token", help="Manage the bearer tokens for HTTP.", help_epilogue=_environment("state-dir"))
app.command(token_app)
app["--help"].group = app["--version"].group = Group("About", sort_key=4)


def run(arguments: Sequence[str]) -> int:
    """Run a command line.

    Returns:
        The exit code: 0, 1 if it could not be done or found differences, 2 if it was not understood.
    """

    def command() -> int:
        try:
            result: object = app(arguments)
        except UnusedCliTokensError as error:
            return complain(f"found {' '.join(error.unused_tokens or ())!a}, which has no place there. {_SEE_HELP}", 2)
        except CycloptsError as error:
            return complain(f"{error} {_SEE_HELP}", 2)
        return result if isinstance(result, int) else 0

    try:
        return guarded(command)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


@Parameter(name="*")
@dataclass
class ServerOptions:
    """What every command that serves takes. Values are read by `steersman.settings`."""

    standalone: Annotated[bool, _option("", "Serve alone, in this process; nothing is kept.")] = False
    state_dir: Annotated[str | None, _STATE_DIR] = None
    providers: Annotated[str | None, _option("NAMES", "Who reaches the human, in order: elicitation, console.")] = None
    plan_mode: Annotated[str | None, _option("tracked|always", "always: for hosts without plan mode.")] = None
    ask_timeout: Annotated[str | None, _option("SECONDS", "Withdraw questions after it; default never.")] = None
    host_profile: Annotated[str | None, _option("codex", "Identify callers as this host does.")] = None
    log_level: Annotated[str | None, _option("LEVEL", "debug, info, warning or error.")] = None
    idle: Annotated[str | None, _option("SECONDS", "End a server in the background after it; default 600.")] = None

    def as_options(self) -> dict[str, str | None]:
        given = {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}
        return {**given, "standalone": "1" if self.standalone else None}


@app.default
def stdio(*, options: ServerOptions | None = None) -> int:
    """Serve MCP on stdio."""
    return run_stdio((options or ServerOptions()).as_options())


@app.command(help_epilogue=_environment("host", "port", "allow-host", *_SHARED))
def serve(
    *,
    host: Annotated[str | None, _option("ADDRESS", f"Listen on it; default {DEFAULT_HOST}.", _HTTP)] = None,
    port: Annotated[str | None, _option("PORT", f"0 for any free one; default {DEFAULT_PORT}.", _HTTP)] = None,
    no_auth: Annotated[bool, _option("", "Ask for no token; loopback only.", _HTTP)] = False,
    allow_host: Annotated[tuple[str, ...], _option("NAME", "A name clients use for it; repeatable.", _HTTP)] = (),
    options: ServerOptions | None = None,
) -> int:
    """Serve MCP over streamable HTTP, at /mcp."""
    given: Options = {
        **(options or ServerOptions()).as_options(),
        "host": host,
        "port": port,
        "allow-host": ",".join(allow_host) or None,
    }
    return run_serve(given, no_auth=no_auth)


terminal_commands.register(app)


# --- tokens ---------------------------------------------------------------------------------------------------------

_StateDir = Annotated[str | None, _STATE_DIR]


@token_app.command(name="new")
def token_new(
    label: Annotated[str, Parameter(help="What you call it.", metavar="LABEL")],
    /,
    *,
    subject: Annotated[str | None, Parameter(help="Whom it stands for; default local, you.", metavar="NAME")] = None,
    host_profile: Annotated[
        str | None, Parameter(help="For the host that identifies callers so.", metavar="codex")
    ] = None,
    state_dir: _StateDir = None,
) -> int:
    """Make a token, and show it this once."""
    from steersman.tokens import LOCAL_REALM, check_name

    subject = LOCAL_REALM if subject is None else subject
    profile = Source({"host-profile": host_profile}, {}).host_profile()
    check_name("label", label)
    check_name("subject", subject)
    made = _server(state_dir).request("new_token", label=label, subject=subject, profile=profile)
    _say(made["token"])
    return 0


@token_app.command(name="list")
def token_list(*, state_dir: _StateDir = None) -> int:
    """List the tokens, without what they are."""
    tokens = _server(state_dir).request("list_tokens")["tokens"]
    rows = [("ID", "LABEL", "SUBJECT", "PROFILE", "CREATED")]
    rows += [
        tuple(token[name] or "-" for name in ("id", "label", "subject", "profile", "created_at")) for token in tokens
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


@token_app.command(name="revoke")
def token_revoke(
    token: Annotated[str, Parameter(help="Its id or label.")],
    /,
    *,
    state_dir: _StateDir = None,
) -> int:
    """End a token: it is answered with 401 from now on."""
    revoked = _server(state_dir).request("revoke_token", token=token)
    _say(f"Revoked {revoked['id']} ({revoked['label']}).")
    return 0


def _server(state_dir: str | None) -> Connection:
    return connect(Source({"state-dir": state_dir}, os.environ), start=True)


# --- the contract ---------------------------------------------------------------------------------------------------


@app.command(help_epilogue="")
def contract(
    *,
    digest: Annotated[bool, Parameter(help="Print the digest alone.")] = False,
    # The hyphen is for `-`.
    check: Annotated[
        Path | None,
        Parameter(help="Compare a saved tools/list result, - for stdin.", metavar="FILE", allow_leading_hyphen=True),
    ] = None,
    verify: Annotated[bool, Parameter(help="Compare the digest with the released one.")] = False,
) -> int:
    """Show or check the frozen contract."""
    from steersman.contract.differences import contract_differences
    from steersman.contract.files import VERSION, contract_digest, released_digest

    if check is not None:
        differences = contract_differences(_saved_tools(check))
        for line in differences:
            _say(line)
        if not differences:
            _say(f"The same as contract {VERSION}.")
        return 1 if differences else 0
    found = contract_digest()
    if verify:
        released = released_digest()
        if found != released:
            _say(f"The digest is {found}, CONTRACT.sha256 has {released}.")
            return 1
        _say(f"The digest is the released one, {found}.")
        return 0
    _say(found if digest else f"{found}  {VERSION}")
    return 0


def _saved_tools(path: Path) -> list[Mapping[str, Any]]:
    """The tool objects of a saved tools/list: a bare list, its result, or the whole JSON-RPC response."""
    where = "stdin" if str(path) == "-" else str(path)
    try:
        saved = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        found: object = json.loads(saved)
    except OSError as error:
        raise SettingsError(f"--check: {where} cannot be read: {error.strerror}. Name a file that can.") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"--check: found {where} without JSON in it; allowed is a tools/list result.") from None
    if is_object(found) and "result" in found:
        found = found["result"]
    if is_object(found):
        found = found.get("tools")
    if not is_list(found):
        raise SettingsError(f"--check: found JSON without a list of tools in {where}; allowed is a tools/list result.")
    listed = [tool for tool in found if is_object(tool)]
    if len(listed) != len(found):
        raise SettingsError(f"--check: found a tool in {where} that is no object; allowed is a tools/list result.")
    return listed


# --- the rest -------------------------------------------------------------------------------------------------------


@app.command(help_epilogue="")
def demo(
    *,
    http: Annotated[bool, Parameter(help="Over HTTP instead of stdio.")] = False,
    auto: Annotated[bool, Parameter(help="Answer by itself, for CI.")] = False,
) -> int:
    """See it work: a small host, its agents, and you."""
    from steersman.demo import run_demo

    raise SystemExit(run_demo(http=http, auto=auto))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
