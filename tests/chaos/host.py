"""A host that goes on whatever dies: `python -m tests.chaos.host WAY STATE_DIR NAME SEED`.

It runs a main agent with subagents, steers these, has the main agent ask the human, and works through every mailbox.
What it does is in its record, and what it was told: started again, it goes on from there. WAY is how it comes to the
server: `legacy` and `modern` are the eras, over a pipe; `http` is modern with the token in STEERSMAN_TOKEN. Once there
is a file `finish` beside its record, it brings what it began to an end and ends.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, ElicitRequestParams, ElicitResult

from steersman.serving.state_files import StateFiles
from steersman_client import Agent, ConnectError, Host, Step, TurnLoop, connect
from tests.chaos.records import Record, read
from tests.processes import pipe

SUBAGENTS: Final = 3
OPTIONS: Final = ("north", "east", "south", "west")
RETRY_DELAYS: Final = (0.0, 0.3, 1.0)
ATTEMPTS: Final = 5
PAUSE: Final = 0.1
LONG_TEXT: Final = 20_000


@dataclass
class Past:
    """What an earlier process of this host, or an earlier connection of this one, has written down."""

    keys: dict[str, str] = field(default_factory=dict[str, str])
    """Resume keys by agent."""
    after: dict[str, int] = field(default_factory=dict[str, int])
    """The newest message that each agent has read."""
    sending: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Subagent and mode of messages whose fate is not known, by their keys."""
    asking: list[str] = field(default_factory=list[str])
    """Questions that have no answer yet."""
    count: int = 0

    def note(self, entry: Mapping[str, Any]) -> None:
        match entry["event"]:
            case "entering":
                self.keys[entry["agent_id"]] = entry["resume_key"]
            case "read":
                self.after[entry["agent_id"]] = entry["seq"]
            case "sending":
                self.sending[entry["key"]] = (entry["to"], entry["mode"])
                self.count += 1
            case "accepted" | "refused":
                self.sending.pop(entry["key"], None)
            case "asking":
                self.asking.append(entry["key"])
                self.count += 1
            case "answered":
                self.asking.remove(entry["key"])
            case _:
                pass


class Program:
    """One host, over however many connections it takes."""

    def __init__(self, way: str, state: Path, record: Path, name: str, dice: random.Random) -> None:
        self._way, self._state, self._name, self._dice = way, state, name, dice
        self._finish = record.parent / "finish"
        self._record = Record(record)
        self._past = Past()
        for entry in read(record):
            self._past.note(entry)
        self._live: list[Agent] = []
        """Agents with a lease, which outlive a connection."""

    async def run(self) -> None:
        self._note("life", pid=os.getpid())
        while True:
            try:
                async with self._connection() as host:
                    await self._work(host)
                    return
            except* (MCPError, ConnectError, OSError) as lost:
                _check_lost(lost)
                self._note("lost")
            await anyio.sleep(PAUSE)

    def _note(self, event: str, **fields: Any) -> None:
        self._record.write(event, **fields)
        self._past.note({"event": event, **fields})

    # --- the connection ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Host]:
        if self._way == "http":
            description = StateFiles(self._state).description.read_text()
            async with connect(json.loads(description)["url"], token=os.environ["STEERSMAN_TOKEN"]) as host:
                yield Host(host.client, retry_delays=RETRY_DELAYS)
            return
        era = "legacy" if self._way == "legacy" else "modern"
        # A host with a dialog of its own, and one that leaves the human to the server.
        elicit = self._show if era == "modern" else None
        async with pipe(self._state, era=era, elicit=elicit, seconds=None, stderr=subprocess.DEVNULL) as process:
            self._note("pipe", pid=process.process.pid)
            yield Host(process.client, retry_delays=RETRY_DELAYS)

    async def _show(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        await anyio.sleep(self._dice.random() * PAUSE)
        del context
        at = self._dice.randrange(len(OPTIONS))
        self._note("dialog", form=params.message, label=OPTIONS[at])
        return ElicitResult(action="accept", content={"q1": str(at + 1)})

    # --- the work ----------------------------------------------------------------------------------------------------

    async def _work(self, host: Host) -> None:
        agents = [_carry(agent, host) for agent in self._live] or await self._enter_all(host)
        if agents[0].lease_seconds:
            self._live = agents
        main, *subagents = agents
        async with anyio.create_task_group() as readers:
            for agent in agents:
                readers.start_soon(TurnLoop(agent, self._reader(agent), after=self._after(agent)).run)
            async with anyio.create_task_group() as senders:
                for subagent in subagents:
                    senders.start_soon(self._steer_on, main, subagent)
                senders.start_soon(self._ask_on, main)
            readers.cancel_scope.cancel()
        for agent in agents:
            await TurnLoop(agent, self._reader(agent), after=self._after(agent)).drain()
        self._note("drained")

    async def _enter_all(self, host: Host) -> list[Agent]:
        main = await self._enter(host, f"{self._name}-main", None)
        return [main, *[await self._enter(host, f"{self._name}-sub{at}", main) for at in range(SUBAGENTS)]]

    async def _enter(self, host: Host, agent_id: str, owner: Agent | None) -> Agent:
        key = self._past.keys.get(agent_id) or secrets.token_urlsafe(32)
        self._note("entering", agent_id=agent_id, resume_key=key)
        return await host.enter(agent_id=agent_id, owner=owner, resume_key=key, supersede=True)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _after(self, agent: Agent) -> int:
        return self._past.after.get(agent.id, 0)

    def _reader(self, agent: Agent) -> Any:
        async def step(step: Step) -> bool:
            for message in step.messages:
                self._note(
                    "read",
                    agent_id=agent.id,
                    seq=message.seq,
                    message_id=message.id,
                    kind=message.kind,
                    key=message.text.partition(" ")[0],
                    size=len(message.text),
                )
            await anyio.sleep(self._dice.random() * 0.01)
            return self._dice.random() < 0.3

        return step

    # --- steering ----------------------------------------------------------------------------------------------------

    async def _steer_on(self, main: Agent, subagent: Agent) -> None:
        while True:
            open_ones = {key: mode for key, (to, mode) in self._past.sending.items() if to == subagent.id}
            if not open_ones:
                if self._finish.exists():
                    return
                key, mode = f"{self._name}:{self._past.count}", "turn" if self._dice.random() < 0.1 else "step"
                self._note("sending", key=key, to=subagent.id, mode=mode)
                open_ones = {key: mode}
            for key, mode in open_ones.items():
                arguments = {"subagent_id": subagent.id, "message": text_of(key), "mode": mode}
                result = await self._call(main, "steer_subagent", arguments, key)
                found = _content(result)
                if result.is_error:
                    self._note("refused", key=key, code=found["error"]["code"])
                    await anyio.sleep(PAUSE)
                else:
                    self._note("accepted", key=key, message_id=found["message_id"])

    async def _call(self, agent: Agent, tool: str, arguments: dict[str, Any], key: str) -> CallToolResult:
        """Call until it is known what came of it: under one key it is one call."""
        for attempt in range(ATTEMPTS):
            try:
                result = await agent.call_tool(tool, arguments, meta={"steersman/idempotencyKey": key})
            except MCPError as error:
                if error.code != CONNECTION_CLOSED or attempt == ATTEMPTS - 1:
                    raise
            else:
                if not result.is_error or _content(result)["error"]["code"] != "SERVER_UNAVAILABLE":
                    return result
            await anyio.sleep(PAUSE * attempt)
        raise MCPError(CONNECTION_CLOSED, "no server to be had")

    # --- asking ------------------------------------------------------------------------------------------------------

    async def _ask_on(self, main: Agent) -> None:
        while True:
            if not self._past.asking:
                if self._finish.exists():
                    return
                await anyio.sleep(self._dice.random() * PAUSE)
                self._note("asking", key=f"{self._name}:{self._past.count}")
            key = self._past.asking[0]
            question = {"id": "q", "question": f"Where to, {key}?", "options": [{"label": each} for each in OPTIONS]}
            result = await self._call(main, "ask_user_question", {"questions": [question]}, key)
            found = _content(result)
            if not result.is_error:
                self._note("answered", key=key, labels=found["answers"][0]["selected"])
                continue
            code = found["error"]["code"]
            self._note("unanswered", key=key, code=code)
            if code not in ("ASK_ABORTED", "NO_PROVIDER"):
                raise AssertionError(found)
            await anyio.sleep(PAUSE)


def text_of(key: str) -> str:
    """The message of a key. Some are long."""
    size = LONG_TEXT if key.endswith("7") else 40
    return f"{key} ".ljust(size, "x")


def _content(result: CallToolResult) -> Mapping[str, Any]:
    assert result.structured_content is not None, result
    return result.structured_content


def _check_lost(failures: BaseExceptionGroup[BaseException]) -> None:
    """Whether a connection is lost: anything else that goes wrong is a fault."""
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            _check_lost(cast("BaseExceptionGroup[BaseException]", failure))
        elif isinstance(failure, MCPError) and failure.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
            raise failure


def _carry(agent: Agent, host: Host) -> Agent:
    """The same activation, over another connection."""
    session = {"parent_session": agent.parent_session, "delegation_depth": agent.delegation_depth}
    entered = {
        "agent_id": agent.id,
        "resume_key": agent.resume_key,
        "session": session,
        "lease_ms": agent.lease_seconds * 1000,
        "credential": agent.credential,
    }
    return Agent(host, entered, agent.owner)


if __name__ == "__main__":
    _, way, state, name, seed = sys.argv
    program = Program(way, Path(state), Path(state).parent / f"{name}.jsonl", name, random.Random(seed))
    anyio.run(program.run)
