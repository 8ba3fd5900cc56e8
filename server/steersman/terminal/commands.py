"""The commands of the human: answer, agents, send, history, forget, status and stop."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from steersman.serving.state_files import Lock, StateFiles
from steersman.settings import CommandError, SettingsError, Source, variable_of
from steersman.terminal.answering import TOLD, Answering, Keyboard
from steersman.terminal.connection import Connection, NoServerError, connect
from steersman.terminal.given import answer_one, read_age, read_answers
from steersman.terminal.screen import Screen

STOP_SECONDS: Final = 10.0
"""How long `stop` waits until the server is gone."""

_EPILOGUE: Final = f"The same by environment: {variable_of('state-dir')}."

StateDir = Annotated[str | None, Parameter(help="Where the server and its journal are.", metavar="DIR")]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON, for scripts.")]


def register(app: App) -> None:
    """Add the commands to the command line."""
    for command in (answer, agents, send, history, forget, status, stop):
        app.command(command, help_epilogue=_EPILOGUE)


def answer(
    card: Annotated[str | None, Parameter(help="The card to answer; without one, whatever waits.")] = None,
    /,
    *,
    select: Annotated[tuple[str, ...], Parameter(help="Choose this label; repeatable.", metavar="LABEL")] = (),
    text: Annotated[str | None, Parameter(help="Answer in your own words.", metavar="WORDS")] = None,
    skip: Annotated[bool, Parameter(help="Skip the question.")] = False,
    answers: Annotated[
        str | None, Parameter(help="Several answers as JSON, - for stdin.", metavar="JSON", allow_leading_hyphen=True)
    ] = None,
    approve: Annotated[bool, Parameter(help="Approve the plan.")] = False,
    keep_planning: Annotated[bool, Parameter(help="Keep planning; --text says what should change.")] = False,
    decline: Annotated[bool, Parameter(help="Refuse to answer; --text says why.")] = False,
    dismiss: Annotated[bool, Parameter(help="Dismiss the card without choosing.")] = False,
    follow: Annotated[bool, Parameter(help="Stay, and print what waits whenever it changes.")] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> int:
    """Answer what agents ask, and decide on their plans."""
    source = _source(state_dir)
    kinds = [bool(select or text is not None) and not (keep_planning or decline), skip, answers is not None]
    given = sum([*kinds, approve, keep_planning, decline, dismiss])
    if card is None:
        if given:
            raise SettingsError("found an answer without a card; allowed is `steersman answer CARD` with it.")
        return _follow(source, as_json=as_json) if follow else _answer_all(source, as_json=as_json)
    if given != 1 or follow:
        raise SettingsError(
            f"CARD: found {given} answers to it; allowed is one of --select and --text, --skip, --answers, --approve, "
            "--keep-planning, --decline and --dismiss."
        )
    with_server = connect(source, start=True)
    if decline or dismiss:
        reason = {"reason": text} if decline and text is not None else {}
        how = "decline" if decline else "dismiss"
        result = with_server.request("refuse", card_id=card, how=how, **reason)
    else:
        if answers is not None:
            found = read_answers(answers)
        else:
            shown = with_server.request("card", card_id=card)
            # Of a settled card nothing is left to fit; the server says so in its own words.
            found = (
                answer_one(shown, select=select, text=text, skip=skip, approve=approve, keep=keep_planning)
                if "questions" in shown
                else []
            )
        result = with_server.request("answer", card_id=card, answers=found)
    return _report(result, TOLD[result["told"]], as_json=as_json)


def _answer_all(source: Source, *, as_json: bool) -> int:
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        result = connect(source, start=True).request("waiting")
        if as_json:
            return _print(result)
        Screen().waiting(result["waiting"], datetime.now(UTC))
        return _say(
            "To answer, run `steersman answer` in a terminal, or `steersman answer CARD` with the answer."
            if result["waiting"]
            else "Nothing waits."
        )
    return Answering(lambda: connect(source, start=True), Screen(), Keyboard()).run()


def _follow(source: Source, *, as_json: bool) -> int:
    """Be there for the human, whose own program reads what waits."""
    shown: list[Mapping[str, Any]] | None = None
    while True:
        server = connect(source, start=True)
        try:
            server.attend()
            while True:
                if server.waiting != shown:
                    shown = server.waiting
                    if as_json:
                        _print({"waiting": shown})
                    else:
                        Screen().waiting(shown, datetime.now(UTC))
                        _say("" if shown else "Nothing waits.")
                    sys.stdout.flush()
                server.listen()
        except NoServerError as error:
            sys.stderr.write(f"steersman: {error} Joining the next one.\n")


def agents(*, as_json: Json = False, state_dir: StateDir = None) -> int:
    """Show the agents as a tree: who is alive, what they wait for."""
    result = connect(_source(state_dir), start=True).request("agents")
    if as_json:
        return _print(result)
    Screen().agents(result["agents"])
    return 0 if result["agents"] else _say("No agent was entered yet.")


def send(
    agent: Annotated[str, Parameter(help="Its id, as `steersman agents` shows it.")],
    text: Annotated[str, Parameter(help="What it is to read; - for stdin.", allow_leading_hyphen=True)],
    /,
    *,
    turn: Annotated[bool, Parameter(help="Stop its turn first, if one runs.")] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> int:
    """Send a message to an agent, which it reads before its next step."""
    words = sys.stdin.read() if text == "-" else text
    server = connect(_source(state_dir), start=True)
    result = server.request("send", agent_id=agent, text=words, at="turn" if turn else "step")
    ahead = result["queued_ahead"]
    before = f" It reads {ahead} before." if ahead else ""
    said = f"Accepted as {result['message_id']}, by way of {result['route']}.{before}"
    return _report(result, said, as_json=as_json)


def history(
    agent: Annotated[str | None, Parameter(help="Of this agent only.")] = None,
    /,
    *,
    limit: Annotated[int, Parameter(help="How many events, the newest; default 1000.", metavar="NUMBER")] = 1000,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> int:
    """Show what happened."""
    params = {} if agent is None else {"agent_id": agent}
    result = connect(_source(state_dir), start=True).request("history", limit=limit, **params)
    if as_json:
        return _print(result)
    Screen().history(result["events"])
    return 0 if result["events"] else _say("Nothing happened yet." if agent is None else f"Nothing of agent {agent}.")


def forget(
    *,
    older_than: Annotated[str, Parameter(help="With s, m, h, d or w, as in 30d.", metavar="AGE")],
    state_dir: StateDir = None,
) -> int:
    """Delete what has been over for longer than that. What waits, and who lives, stays."""
    seconds = read_age(older_than)
    connect(_source(state_dir), start=True).request("forget", older_than=seconds)
    return _say(f"Forgot what was over {older_than} ago.")


def status(*, as_json: Json = False, state_dir: StateDir = None) -> int:
    """Show the server that runs. The exit code is 1 if none does."""
    found = connect(_source(state_dir), start=False).request("status")
    if as_json:
        return _print(found)
    for name in ("pid", "version", "started_at", "url", "socket", "log", "pipes", "agents", "waiting"):
        _say(f"{name.replace('_', ' '):12}{found[name]}")
    return 0


def stop(*, state_dir: StateDir = None) -> int:
    """End the server that runs. What is open is answered, what was accepted is kept."""
    source = _source(state_dir)
    server = connect(source, start=False)
    server.request("stop")
    _wait_until_gone(server, StateFiles(source.state_dir()))
    return _say(f"Ended process {server.pid}.")


def _wait_until_gone(server: Connection, files: StateFiles) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    gone = server.wait_for_end(STOP_SECONDS)
    while gone and Lock.is_held(files) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not gone or time.monotonic() >= deadline:
        raise CommandError(f"Process {server.pid} was told to end, and has not within {STOP_SECONDS:.0f} s.")


def _source(state_dir: str | None) -> Source:
    return Source({"state-dir": state_dir}, os.environ)


def _report(result: Mapping[str, Any], said: str, *, as_json: bool) -> int:
    return _print(result) if as_json else _say(said)


def _print(result: Mapping[str, Any]) -> int:
    """Print a result as one line of JSON."""
    sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
    return 0


def _say(text: str) -> int:
    Screen().say(text)
    return 0
