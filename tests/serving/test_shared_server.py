"""The one server of a state directory, with real processes: who starts it, who meets in it, and what outlives it."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult

from steersman.serving.state_files import Lock, StateFiles
from steersman.terminal.connection import NoServerError
from steersman_client import Agent, Step, TurnLoop, connect
from tests.human import Human
from tests.processes import PipeProcess, control, gone, kill_server, pipe, said, server_pid
from tests.requirements import requirement
from tests.terminal.processes import run
from tests.world import code, error, text

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc"),
]

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}


@pytest.fixture
async def state(tmp_path: Path) -> AsyncGenerator[Path]:
    """A state directory whose server is ended in the end."""
    directory = tmp_path / "state"
    yield directory
    with suppress(NoServerError):
        await control(directory, "stop")


class Calls:
    """Calls in the background, by name."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self.results: dict[str, CallToolResult] = {}
        self._changed = anyio.Event()

    def start(self, of: PipeProcess, name: str, tool: str, arguments: dict[str, Any], **options: Any) -> None:
        async def call() -> None:
            self.results[name] = await of.client.call_tool(tool, arguments, **options)
            self._changed.set()

        self._group.start_soon(call)

    async def result(self, name: str) -> CallToolResult:
        while name not in self.results:
            self._changed = anyio.Event()
            await self._changed.wait()
        return self.results[name]


async def read_all(agent: Agent, after: int = 0) -> list[str]:
    """What an agent has to read, as one who works through it."""
    read: list[str] = []

    async def step(step: Step) -> bool:
        read.extend(message.text for message in step.messages)
        return False

    await TurnLoop(agent, step, after=after).drain()
    return read


async def ids(of: PipeProcess) -> set[str]:
    return {agent["agent_id"] for agent in (await of.host.agents())}


@asynccontextmanager
async def many(state: Path, count: int) -> AsyncGenerator[list[PipeProcess]]:
    async with AsyncExitStack() as stack:
        pipes: list[PipeProcess] = []
        for _ in range(count):
            pipes.append(await stack.enter_async_context(pipe(state)))
        yield pipes


@requirement("shared:one-server")
async def test_pipes_that_start_at_once_get_one_server(state: Path) -> None:
    pids: list[int] = []
    started, all_started = 0, anyio.Event()

    async def be_a_host() -> None:
        nonlocal started
        async with pipe(state) as host:
            await host.client.list_tools()
            pids.append((await control(state, "status"))["pid"])
            started += 1
            if started == 4:
                all_started.set()
            await all_started.wait()
            assert (await control(state, "status"))["pipes"] == 4

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(be_a_host)
    assert len(set(pids)) == 1


@requirement("shared:detached")
async def test_the_server_is_nobodys_child_and_keeps_nothing_of_the_hosts_environment(state: Path) -> None:
    async with pipe(state, env={"SECRET_TOKEN": "hunter2", "LC_ALL": "C.UTF-8"}) as host:
        await host.client.list_tools()
        pid = await server_pid(state)
        assert os.getsid(pid) not in (os.getsid(0), host.process.pid)
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert "hunter2" not in environment
        assert "LC_ALL=C.UTF-8" in environment
        assert Path(f"/proc/{pid}/cwd").readlink() == state
        for name in ("server.sock", "server.json", "server.lock", "server.log", "journal.sqlite3"):
            assert (state / name).stat().st_mode & 0o777 == 0o600, name
        assert state.stat().st_mode & 0o777 == 0o700
        host.kill()
        assert (await control(state, "status"))["pid"] == pid


@requirement("shared:crash", "shared:orphaned")
async def test_a_killed_server_aborts_what_was_open_and_the_next_one_has_the_same_agents(state: Path) -> None:
    human = Human()
    async with pipe(state, elicit=human) as host, anyio.create_task_group() as group:
        calls = Calls(group)
        calls.start(host, "ask", "ask_user_question", ASK)
        dialog = await human.next()
        [root] = await ids(host)
        old = await kill_server(state)
        assert code(await calls.result("ask")) == "ASK_ABORTED"
        await dialog.withdrawn.wait()
        # The next call finds the next server, on which the handshake was repeated.
        calls.start(
            host, "again", "ask_user_question", {"questions": [{"id": "q", "question": "Anew?", "options": []}]}
        )
        (await human.next()).accept(q1="yes")
        assert '"custom":"yes"' in text(await calls.result("again"))
        assert await server_pid(state) != old
        assert await ids(host) == {root}
        # Nothing answered the old one by itself.
        [card] = (await control(state, "waiting"))["waiting"]
        assert (card["orphaned"], card["agent_id"], card["questions"][0]["question"]) == (True, root, "Which?")
        assert [option["label"] for option in card["questions"][0]["options"]] == ["A", "B"]


@requirement("shared:unknown-outcome")
async def test_a_steer_whose_server_died_before_it_answered_says_that_nobody_knows(state: Path) -> None:
    async with pipe(state) as host, anyio.create_task_group() as group:
        parent = await host.host.enter()
        child = await host.host.enter(owner=parent)
        calls = Calls(group)
        pid = await server_pid(state)
        os.kill(pid, signal.SIGSTOP)
        before = host.read_so_far()
        calls.start(host, "steer", "steer_subagent", {"subagent_id": child.id, "message": "x"}, meta=parent.meta)
        await host.passed_on(since=before)
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
        failed = error(await calls.result("steer"))
        assert failed["code"] == "SERVER_UNAVAILABLE"
        assert "Whether it had accepted the message is not known." in failed["message"]


@requirement("shared:crash", "shared:mailbox")
async def test_mailboxes_receipts_and_credentials_outlive_the_server(state: Path) -> None:
    async with pipe(state) as host:
        parent = await host.host.enter(label="parent")
        child = await host.host.enter(owner=parent, label="child")
        steer = {"subagent_id": child.id, "message": "left"}
        once: Any = {**parent.meta, "steersman/idempotencyKey": "one"}
        first = await host.client.call_tool("steer_subagent", steer, meta=once)
        await host.client.call_tool("steer_subagent", {**steer, "message": "right"}, meta=parent.meta)
        await kill_server(state)
        again = await host.client.call_tool("steer_subagent", steer, meta=once)
        assert text(again) == text(first)
        other = await host.client.call_tool("steer_subagent", {**steer, "message": "no"}, meta=once)
        assert code(other) == "INVALID_ARGUMENTS"
        await kill_server(state)
        assert await read_all(child) == ["left", "right"]


@requirement("shared:handles")
async def test_a_modern_answer_is_good_after_a_restart_and_used_once(state: Path) -> None:
    async with pipe(state, era="modern", elicit=Human()) as host:
        session = host.client.session
        asked = await session.call_tool("ask_user_question", ASK, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        await kill_server(state)

        async def answer(value: str) -> CallToolResult:
            answers: Any = {"answers": {"action": "accept", "content": {"q1": value}}}
            result = await session.call_tool(
                "ask_user_question", ASK, input_responses=answers, request_state=asked.request_state
            )
            assert isinstance(result, CallToolResult)
            return result

        first = await answer("2")
        assert '"selected":["B"]' in text(first)
        await kill_server(state)
        assert text(await answer("2")) == text(first)
        assert code(await answer("1")) == "ANSWER_INVALID"


@requirement("shared:idle")
async def test_a_server_without_connections_ends_and_leaves_nothing_behind(state: Path) -> None:
    async with pipe(state, "--idle", "0.2") as host:
        await host.client.list_tools()
        pid = await server_pid(state)
    await gone(pid)
    assert sorted(path.name for path in state.iterdir() if path.name.startswith("server.")) == [
        "server.lock",
        "server.log",
    ]


@requirement("shared:newer")
async def test_a_newer_pipe_has_an_older_server_end_once_nothing_is_open_and_says_so(state: Path) -> None:
    newer = (
        "import os, sys; from steersman.serving.pipe import run_pipe; "
        "run_pipe({'state-dir': sys.argv[2]}, os.environ, version='99.0')"
    )
    human = Human()
    async with pipe(state, elicit=human) as old, anyio.create_task_group() as group:
        calls = Calls(group)
        calls.start(old, "ask", "ask_user_question", ASK)
        dialog = await human.next()
        pid = await server_pid(state)
        async with pipe(state, command=("-c", newer)) as new:
            assert len((await new.client.list_tools()).tools) == 3
            assert await server_pid(state) == pid
            dialog.accept(q1="1")
            assert not (await calls.result("ask")).is_error
            await gone(pid)
            assert len((await new.client.list_tools()).tools) == 3
            assert await server_pid(state) != pid
            new.kill()
            assert "older than this one, 99.0. It was asked to end once nothing is open" in said(new)


@requirement("shared:ten-pipes")
async def test_of_ten_pipes_of_two_hosts_one_is_killed_and_the_others_notice_nothing(state: Path) -> None:
    async with many(state, 10) as pipes:
        mine, others = pipes[:5], pipes[5:]
        parent = await mine[0].host.enter(label="parent")
        owner = await others[0].host.enter(label="other")
        # Each in a process of its own, under a parent that lives in another.
        children = [await each.host.enter(owner=parent) for each in mine[1:]]
        strangers = [await each.host.enter(owner=owner) for each in others[1:]]
        mine[4].kill()
        for number, child in enumerate(children[:3]):
            steer = {"subagent_id": child.id, "message": f"for {number}"}
            assert not (await mine[0].client.call_tool("steer_subagent", steer, meta=parent.meta)).is_error
        stranger = {"subagent_id": strangers[0].id, "message": "no"}
        assert code(await mine[0].client.call_tool("steer_subagent", stranger, meta=parent.meta)) == "UNKNOWN_SUBAGENT"
        for number, child in enumerate(children[:3]):
            assert await read_all(child) == [f"for {number}"]
        for each in [*mine[:4], *others]:
            assert len((await each.client.list_tools()).tools) == 3
        for child in strangers:
            assert (
                code(await others[1].client.call_tool("ask_user_question", ASK, meta=child.meta)) == "DELEGATED_CALLER"
            )


@requirement("shared:unusable")
@pytest.mark.parametrize("what", ["directory", "text", "foreign", "newer"])
async def test_a_journal_that_cannot_be_used_is_named_in_the_answer_with_what_to_do(state: Path, what: str) -> None:
    state.mkdir(mode=0o700)
    path = state / "journal.sqlite3"
    match what:
        case "directory":
            path.mkdir()
        case "text":
            path.write_text("not a database, but long enough to look at it " * 100)
        case _:
            with sqlite3.connect(path) as connection:
                if what == "foreign":
                    connection.execute("CREATE TABLE things (a)")
                else:
                    connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
                    connection.execute("INSERT INTO alembic_version VALUES ('9999')")
            connection.close()
    before = None if what == "directory" else path.read_bytes()
    async with pipe(state) as host:
        assert len((await host.client.list_tools()).tools) == 3
        found = error(await host.client.call_tool("ask_user_question", ASK))
        assert found["code"] == "SERVER_UNAVAILABLE"
        assert str(path) in found["message"]
        assert any(
            word in found["message"] for word in ("Move it away", "move it", "choose another", "Install the newer")
        )
    assert before is None or path.read_bytes() == before


@requirement("shared:full-disk")
async def test_on_a_full_disk_nothing_is_said_to_be_stored(state: Path) -> None:
    async with pipe(state) as host:
        parent = await host.host.enter()
        child = await host.host.enter(owner=parent)
        pid = await server_pid(state)
        # What the server may write ends here, as a disk does.
        import resource

        size = max(file.stat().st_size for file in state.glob("journal.sqlite3*"))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 4096, size + 4096))
        accepted, refused = 0, None
        for number in range(50):
            steer = {"subagent_id": child.id, "message": f"{number} " + "x" * 2000}
            result = await host.client.call_tool("steer_subagent", steer, meta=parent.meta)
            if result.is_error:
                refused = error(result)
                break
            accepted += 1
        assert refused is not None
        assert refused["code"] == "SERVER_UNAVAILABLE"
        assert str(state / "journal.sqlite3") in refused["message"]
        await gone(pid)
        # The next server has all that was accepted.
        assert [message.split()[0] for message in await read_all(child)][:accepted] == [str(n) for n in range(accepted)]


@requirement("shared:stale")
async def test_a_socket_and_lock_of_a_dead_server_are_in_nobodys_way(state: Path) -> None:
    async with pipe(state) as host:
        await host.client.list_tools()
        # Nobody is left who would start the next one at once.
        pid = await server_pid(state)
        host.kill()
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
        assert (state / "server.sock").is_socket()
        assert (state / "server.json").is_file()
    assert (await run(state, "status")).code == 1
    async with pipe(state) as host:
        assert len((await host.client.list_tools()).tools) == 3


STRANGER = """
import os, socket, sys
from steersman.serving.state_files import StateDirError, StateFiles
from pathlib import Path
os.setgid(65534)
os.setuid(65534)
try:
    StateFiles(Path(sys.argv[1])).connect()
except StateDirError as error:
    print(error)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1] + "/server.sock")
try:
    connection.sendall(b'\\x00{"role":"control"}\\n')
    print(connection.recv(100))
except OSError as error:
    print(b"")
"""


@requirement("shared:peer")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_who_can_reach_the_socket_is_not_spoken_with() -> None:
    with TemporaryDirectory() as directory:
        state = Path(directory)
        async with pipe(state) as host:
            await host.client.list_tools()
            state.chmod(0o755)
            (state / "server.sock").chmod(0o666)
            command = [sys.executable, "-c", STRANGER, directory]
            said_by = (await anyio.run_process(command)).stdout.decode().splitlines()
            assert said_by == [
                "The other end of the socket is the user of id 0; allowed is only the user of id 65534.",
                "b''",
            ]
            assert len((await host.client.list_tools()).tools) == 3
        await control(state, "stop")


@requirement("shared:stale")
async def test_a_lock_whose_holder_does_not_listen_is_named_with_its_process(state: Path) -> None:
    files = StateFiles(state)
    lock = Lock.take(files)
    assert lock is not None
    try:
        with pytest.RaisesGroup(
            pytest.RaisesExc(MCPError, match=f"process {os.getpid()} holds {files.lock}.*End that process"),
            flatten_subgroups=True,
        ):
            async with pipe(state):
                pass
    finally:
        lock.release()


@requirement("shared:http", "serving:tokens")
async def test_over_http_beside_a_token_is_good_from_its_making_to_its_end_whatever_dies(state: Path) -> None:
    async with pipe(state) as host:
        parent = await host.host.enter(label="parent")
        made = (await run(state, "token", "new", "laptop")).out.strip()
        first = (state / "token").read_text().strip()
        await kill_server(state)
        assert await ids(host) == {parent.id}
        # The same realm as that of the pipes.
        for token in (made, first):
            url = (await control(state, "status"))["url"]
            async with connect(url, token=token) as there:
                assert parent.id in {agent["agent_id"] for agent in await there.agents()}
        await run(state, "token", "revoke", "laptop")
        await kill_server(state)
        await ids(host)
        url = (await control(state, "status"))["url"]
        async with httpx2.AsyncClient() as http:
            for token, status in ((made, 401), (first, 400)):
                response = await http.post(url, headers={"Authorization": f"Bearer {token}"}, content="{}")
                assert response.status_code == status


@requirement("terminal:server")
async def test_status_and_stop_see_to_the_server_and_start_none(state: Path) -> None:
    none = await run(state, "stop")
    assert (none.code, none.out) == (1, "")
    assert f"No server runs for {state}." in none.err
    async with pipe(state) as host:
        await host.client.list_tools()
        shown = await run(state, "status", "--json")
        assert shown.json["pid"] == await server_pid(state)
        assert shown.json["pipes"] == 1
        stopped = await run(state, "stop")
        assert stopped.out == f"Ended process {shown.json['pid']}.\n"
        assert (await run(state, "status")).code == 1


@requirement("terminal:agents", "terminal:history")
async def test_agents_are_shown_spoken_to_looked_back_at_and_forgotten(state: Path) -> None:
    async with pipe(state) as host:
        parent = await host.host.enter(label="\x1b[1mboss")
        child = await host.host.enter(owner=parent, label="helper", mode="one-shot")
        tree = (await run(state, "agents")).out.splitlines()
        assert [line.split("  ")[0] for line in tree] == [f"{parent.id} ⟦U+001B⟧[1mboss", f"└── {child.id} helper"]
        [shown] = (await run(state, "agents", "--json")).json["agents"]
        assert shown["subagents"][0]["agent_id"] == child.id
        sent = await run(state, "send", child.id, "-", "--json", stdin="a secret word")
        assert sent.json["route"] in ("step", "turn", "wakeup")
        assert (await run(state, "send", "nobody", "hello")).code == 1
        assert await read_all(child) == ["a secret word"]
        await child.exit("completed")
        assert "was sent a message: a secret word" in (await run(state, "history", child.id)).out
        kinds = [event["kind"] for event in (await run(state, "history", "--json")).json["events"]]
        assert kinds[:3] == ["TokenMade", "AgentEntered", "AgentEntered"]
        assert (await run(state, "forget", "--older-than", "soon")).code == 2
        assert (await run(state, "forget", "--older-than", "0s")).code == 0
        assert "secret" not in (await run(state, "history")).out
        files = b"".join(path.read_bytes() for path in state.glob("journal.sqlite3*"))
        assert b"a secret word" not in files
        assert await ids(host) >= {parent.id}
