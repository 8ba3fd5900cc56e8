"""The Codex host profile: who calls stands in `_meta`, and what cannot be read is a dead caller."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from steersman_client import Host, HostMethodError
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, code, error, text

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
TURN = "x-codex-turn-metadata"


def root(thread: str = "T") -> Any:
    return {"threadId": thread, "sessionId": thread, "callId": f"c-{thread}", TURN: {"thread_source": "user"}}


def child(thread: str, session: str = "T", parent: str | None = None) -> Any:
    turn = {"thread_source": "subagent", **({"parent_thread_id": parent} if parent else {})}
    return {"threadId": thread, "sessionId": session, TURN: turn}


@requirement("caller:codex")
async def test_the_root_thread_asks_and_its_subagents_are_refused_at_every_depth(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            for meta in (child("C", parent="T"), child("G", parent="C"), child("C")):
                assert code(await client.call_tool("ask_user_question", ASK, meta=meta)) == "DELEGATED_CALLER"
            assert '"selected":["A"]' in text(await client.call_tool("ask_user_question", ASK, meta=root()))
            listed = error(await client.call_tool("steer_subagent", {"subagent_id": "x", "message": "y"}, meta=root()))
            assert listed["subagents"] == [{"id": "codex:C", "label": "codex:C", "status": "live"}]
            [tree] = await Host(client).agents()
            assert (tree["agent_id"], tree["subagents"][0]["agent_id"]) == ("codex:T", "codex:C")
            assert tree["subagents"][0]["subagents"][0]["agent_id"] == "codex:G"


@requirement("steer:readers")
async def test_a_thread_that_no_host_reads_for_is_not_steered(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            await client.call_tool("ask_user_question", ASK, meta=child("C", parent="T"))
            for name in ("C", "codex:C"):
                steer = {"subagent_id": name, "message": "y"}
                assert code(await client.call_tool("steer_subagent", steer, meta=root())) == "UNKNOWN_SUBAGENT"


@requirement("caller:codex")
async def test_turn_metadata_may_come_as_json_text(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            meta: Any = {**child("C", parent="T")}
            meta[TURN] = json.dumps(meta[TURN])
            assert code(await client.call_tool("ask_user_question", ASK, meta=meta)) == "DELEGATED_CALLER"


@requirement("caller:codex")
@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"threadId": "T"},
        {"sessionId": "T"},
        {"threadId": "", "sessionId": ""},
        {"threadId": 1, "sessionId": 1},
        {**root(), TURN: "{"},
        {**root(), TURN: "[]"},
        {**root(), TURN: 5},
        {**root(), TURN: {"parent_thread_id": ""}},
        {**root(), TURN: {"parent_thread_id": 7}},
        {**root(), TURN: {"parent_thread_id": "T"}},
        {**root(), TURN: {"thread_source": ["subagent"]}},
        {**root(), TURN: {"thread_source": "subagent"}},
    ],
)
async def test_what_cannot_be_read_is_a_dead_caller(connect: Connect, meta: Any) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            assert code(await client.call_tool("ask_user_question", ASK, meta=meta)) == "CALLER_NOT_LIVE"
            assert await Host(client).agents() == []


@requirement("caller:codex")
async def test_a_thread_that_changes_its_owner_while_it_lives_is_a_dead_caller(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            owned: Any = child("C", parent="T")
            assert code(await client.call_tool("ask_user_question", ASK, meta=owned)) == "DELEGATED_CALLER"
            for claim in (root("C"), child("C", parent="X")):
                assert code(await client.call_tool("ask_user_question", ASK, meta=claim)) == "CALLER_NOT_LIVE"
            assert code(await client.call_tool("ask_user_question", ASK, meta=owned)) == "DELEGATED_CALLER"


@requirement("caller:codex")
async def test_a_credential_goes_before_the_profile(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            meta: Any = {**root(), "steersman/agent": "forged"}
            assert code(await client.call_tool("ask_user_question", ASK, meta=meta)) == "CALLER_NOT_LIVE"


@requirement("caller:profile-off")
async def test_without_the_profile_codex_metadata_decides_nothing(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            meta: Any = child("C", parent="T")
            assert not (await client.call_tool("ask_user_question", ASK, meta=meta)).is_error


@requirement("caller:profile-off")
@pytest.mark.parametrize("taken", ["codex:T", "claude:T", "codex:"])
async def test_no_host_enters_an_id_of_a_profile(connect: Connect, taken: str) -> None:
    with anyio.fail_after(5):
        async with connect(profile="codex") as world, world.client(Human({"q1": "1"})) as client:
            await client.call_tool("ask_user_question", ASK, meta=root())
            with pytest.raises(HostMethodError, match="INVALID_ARGUMENTS"):
                await Host(client).enter(agent_id=taken, supersede=True, resume_key="x" * 43)
