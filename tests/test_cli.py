"""The command line as its user meets it: real processes, their output and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steersman import __version__
from steersman.contract.files import contract_digest, tools
from tests.requirements import requirement


def steersman(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STEERSMAN_")}
    return subprocess.run(
        [sys.executable, "-m", "steersman", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        env={**inherited, **environ},
    )


def request(method: str, request_id: int, params: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + "\n"


INITIALIZE = request(
    "initialize",
    0,
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
)


@requirement("serving:command")
@pytest.mark.parametrize(
    ("arguments", "found", "allowed"),
    [
        (["--plan-mode", "maybe"], "'maybe'", "tracked or always"),
        (["--ask-timeout", "soon"], "'soon'", "greater than 0"),
        (["--ask-timeout", "0"], "'0'", "greater than 0"),
        (["--ask-timeout", "-3"], "'-3'", "greater than 0"),
        (["--ask-timeout", "nan"], "'nan'", "greater than 0"),
        (["--ask-timeout", "inf"], "'inf'", "greater than 0"),
        (["--providers", "human"], "'human'", "elicitation"),
        (["--providers", "elicitation,elicitation"], "'elicitation,elicitation'", "once"),
        (["--host-profile", "cursor"], "'cursor'", "codex"),
        (["--log-level", "loud"], "'loud'", "debug, info, warning or error"),
        (["serve", "--port", "65536"], "'65536'", "65535"),
        (["serve", "--port", "http"], "'http'", "65535"),
        (["serve", "--no-auth", "--host", "192.0.2.1"], "192.0.2.1", "loopback"),
        (["serve", "--host-profile", "codex"], "'codex'", "token new"),
        (["token", "new", ""], "''", "1 to 64"),
        (["token", "new", "x", "--host-profile", "cursor"], "'cursor'", "codex"),
    ],
    ids=" ".join,
)
def test_a_bad_value_is_named_with_what_is_allowed(
    tmp_path: Path, arguments: list[str], found: str, allowed: str
) -> None:
    ended = steersman(*arguments, STEERSMAN_STATE_DIR=str(tmp_path / "state"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert arguments[-2] in ended.stderr or "label" in ended.stderr or "--no-auth" in ended.stderr
    assert found in ended.stderr
    assert allowed in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "state").exists()


@requirement("serving:command")
@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["--nonsense"], ["serve", "--port"], ["token", "new"], ["token", "nonsense"]],
    ids=" ".join,
)
def test_what_is_not_understood_exits_with_2_and_writes_nothing_to_stdout(arguments: list[str]) -> None:
    ended = steersman(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "steersman --help" in ended.stderr


@requirement("serving:command")
def test_a_variable_says_the_same_as_its_option_and_is_named_when_it_is_wrong() -> None:
    for variable, value in [
        ("STEERSMAN_PLAN_MODE", "maybe"),
        ("STEERSMAN_ASK_TIMEOUT", "soon"),
        ("STEERSMAN_PROVIDERS", "human"),
        ("STEERSMAN_HOST_PROFILE", "cursor"),
        ("STEERSMAN_LOG_LEVEL", "loud"),
        ("STEERSMAN_STANDALONE", "perhaps"),
    ]:
        ended = steersman(**{variable: value})
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"steersman: {variable}: found {value!r}; allowed is ")


@requirement("serving:command")
def test_an_option_wins_over_its_variable() -> None:
    assert steersman("--plan-mode", "always", STEERSMAN_PLAN_MODE="maybe").returncode == 0


@requirement("serving:command")
@pytest.mark.parametrize("command", [[], ["serve"]], ids=["bare", "serve"])
def test_the_help_names_every_option_and_its_variable(command: list[str]) -> None:
    ended = steersman(*command, "--help", COLUMNS="100")
    assert (ended.returncode, ended.stderr) == (0, "")
    for option in ("standalone", "state-dir", "providers", "plan-mode", "ask-timeout", "host-profile", "log-level"):
        assert f"--{option}" in ended.stdout
        assert "STEERSMAN_" + option.upper().replace("-", "_") in ended.stdout


@requirement("serving:command")
def test_the_version_is_printed() -> None:
    ended = steersman("--version")
    assert (ended.returncode, ended.stdout) == (0, f"steersman {__version__}\n")


@requirement("serving:command")
@pytest.mark.parametrize("arguments", [[], ["--standalone", "--log-level", "debug"]], ids=["bare", "with options"])
def test_the_bare_command_speaks_mcp_on_stdio_and_nothing_else(arguments: list[str]) -> None:
    ended = steersman(*arguments, stdin=INITIALIZE)
    assert ended.returncode == 0
    [line] = ended.stdout.splitlines()
    assert json.loads(line)["result"]["serverInfo"]["name"] == "steersman"
    assert all(json.loads(line)["level"] for line in ended.stderr.splitlines())


@requirement("serving:command")
def test_without_providers_nobody_can_be_asked() -> None:
    question = {"id": "q1", "question": "Go on?", "options": [{"label": "Yes"}, {"label": "No"}]}
    call = request("tools/call", 1, {"name": "ask_user_question", "arguments": {"questions": [question]}})
    with subprocess.Popen(
        [sys.executable, "-m", "steersman", "--providers", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(INITIALIZE + '{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + call)
        started.stdin.flush()
        started.stdout.readline()
        result = json.loads(started.stdout.readline())["result"]
        started.stdin.close()
        assert started.wait(timeout=5) == 0
    assert result["structuredContent"]["error"]["code"] == "NO_PROVIDER"


@requirement("serving:command")
@pytest.mark.parametrize("arguments", [[], ["--standalone"]], ids=["pipe", "standalone"])
def test_what_hosts_start_imports_no_more_than_it_needs(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "steersman", *arguments]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=20)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert ("steersman.server" if arguments else "steersman.serving.pipe") in imported
    assert not imported & {"cyclopts", "rich", "jsonschema", *([] if arguments else ["mcp", "pydantic", "anyio"])}


@requirement("serving:command")
def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    where = {"STEERSMAN_STATE_DIR": str(tmp_path)}
    made = steersman("token", "new", "laptop", "--subject", "guest", "--host-profile", "codex", **where)
    assert (made.returncode, made.stderr) == (0, "")
    plaintext = made.stdout.strip()
    assert len(plaintext) == 43
    listed = steersman("token", "list", **where)
    assert plaintext not in listed.stdout
    head, first, row = [line.split() for line in listed.stdout.splitlines()]
    assert head == ["ID", "LABEL", "SUBJECT", "PROFILE", "CREATED"]
    assert first[1:4] == ["local", "local", "-"]
    assert row[1:4] == ["laptop", "guest", "codex"]
    assert steersman("token", "revoke", row[0], **where).returncode == 0
    again = steersman("token", "revoke", "laptop", "--state-dir", str(tmp_path))
    assert (again.returncode, again.stdout) == (1, "")
    assert "token list" in again.stderr
    assert steersman("stop", **where).returncode == 0


@requirement("serving:command")
def test_a_taken_port_is_named_with_the_option_that_helps(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = steersman("serve", "--port", port, "--state-dir", str(tmp_path / "state"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert port in ended.stderr
    assert "--port" in ended.stderr


@requirement("serving:command")
def test_all_addresses_without_a_name_are_refused(tmp_path: Path) -> None:
    ended = steersman("serve", "--host", "0.0.0.0", "--port", "0", "--state-dir", str(tmp_path / "state"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "--allow-host" in ended.stderr


# --- the contract ---------------------------------------------------------------------------------------------------


@requirement("serving:command")
def test_the_digest_is_printed_alone_or_with_the_version() -> None:
    assert steersman("contract", "--digest").stdout == f"{contract_digest()}\n"
    assert steersman("contract").stdout.split() == [contract_digest(), "v1"]


@requirement("serving:command")
def test_the_contract_is_verified_against_the_released_digest() -> None:
    ended = steersman("contract", "--verify")
    assert ended.returncode == 0
    assert contract_digest() in ended.stdout


@requirement("serving:command")
@pytest.mark.parametrize("shape", ["list", "result", "response"])
def test_a_saved_tool_list_of_any_shape_is_compared(tmp_path: Path, shape: str) -> None:
    def saved(listed: Any) -> str:
        result = {"tools": listed, "ttlMs": 1}
        shapes = {"list": listed, "result": result, "response": {"jsonrpc": "2.0", "id": 1, "result": result}}
        return json.dumps(shapes[shape])

    path = tmp_path / "saved.json"
    path.write_text(saved(tools()))
    same = steersman("contract", "--check", str(path))
    assert (same.returncode, same.stderr) == (0, "")
    changed = [dict(tool) for tool in tools()]
    changed[0]["description"] = "Another."
    del changed[1]["title"]
    other = steersman("contract", "--check", "-", stdin=saved(changed))
    assert other.returncode == 1
    first, second = other.stdout.splitlines()
    assert first.startswith("ask_user_question.description is")
    assert second == "exit_plan_mode.title is missing"


@requirement("serving:command")
@pytest.mark.parametrize("content", ["", "{", "{}", "3", '{"tools": 1}', "[1]", '{"result": []}x'])
def test_what_is_no_tool_list_is_not_taken_for_a_difference(content: str) -> None:
    ended = steersman("contract", "--check", "-", stdin=content)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "tools/list" in ended.stderr


@requirement("serving:command")
def test_a_missing_file_is_not_taken_for_a_difference(tmp_path: Path) -> None:
    ended = steersman("contract", "--check", str(tmp_path / "none.json"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "none.json" in ended.stderr
