"""An agent that another agent owns never reaches the human, and is told so at once."""

from __future__ import annotations

import anyio
import pytest
from inline_snapshot import snapshot

from steersman.clock import SystemClock
from steersman.errors import UserQuestionError
from steersman.journal import AgentEntered, MemoryJournal, TokenMade
from steersman.questions.requests import AskRequest
from steersman.questions.service import UserQuestions
from steersman.questions.types import Question
from steersman.registry import AgentRegistry
from steersman_client import Agent, Host
from tests.human import Human
from tests.providers import choosing
from tests.requirements import requirement
from tests.world import Connect, code, error, text

pytestmark = pytest.mark.anyio

ASK = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
PLAN = {"plan": "# Plan\n\nDo it."}
CHOICE_A = {"q1": "1"}


async def ask(agent: Agent) -> str:
    return text(await agent.call_tool("ask_user_question", ASK))


@requirement("guard:child-refused")
async def test_a_child_that_asks_is_refused_and_nothing_is_asked(connect: Connect) -> None:
    provider = choosing("A")
    human = Human(CHOICE_A)
    with anyio.fail_after(5):
        async with connect(providers=[provider]) as world, world.client(human) as client:
            host = Host(client)
            async with host.agent() as root, host.agent(owner=root) as child:
                found = error(await child.call_tool("ask_user_question", ASK))
                assert found == snapshot(
                    {
                        "name": "UserQuestionError",
                        "code": "DELEGATED_CALLER",
                        "message": "Human interaction is unavailable to an agent that another agent owns. Put the "
                        "unresolved question or decision into the final result; the owner takes it from there.",
                    }
                )
                assert not provider.cards
                assert not human.dialogs
                assert world.services.questions.open_cards("local") == []
                assert {type(event) for event in world.events} - {TokenMade} == {AgentEntered}


@requirement("guard:many-children")
async def test_thirty_five_children_are_refused_at_once_and_the_root_can_still_ask(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            root = await host.enter()
            children = [await host.enter(owner=root) for _ in range(35)]
            refusals: list[str] = []

            async def try_one(child: Agent) -> None:
                refusals.append(code(await child.call_tool("ask_user_question", ASK)))

            async with anyio.create_task_group() as group:
                for child in children:
                    group.start_soon(try_one, child)
            assert refusals == ["DELEGATED_CALLER"] * 35
            assert '"selected":["A"]' in await ask(root)


@requirement("guard:chains")
async def test_every_depth_below_a_root_gets_one_text_from_both_tools(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            owner = await host.enter()
            texts: set[str] = set()
            depths: list[int] = []
            for _ in range(8):
                owner = await host.enter(owner=owner, plan_mode=True)
                depths.append(owner.delegation_depth)
                texts.add(await ask(owner))
                texts.add(text(await owner.call_tool("exit_plan_mode", PLAN)))
            assert depths == list(range(1, 9))
            assert len(texts) == 1
            assert texts.pop().startswith("DELEGATED_CALLER: ")


@requirement("guard:stable-text")
async def test_twenty_refusals_in_a_row_are_byte_identical(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            async with host.agent() as root, host.agent(owner=root) as child:
                results = [(await child.call_tool("ask_user_question", ASK)).model_dump_json() for _ in range(20)]
                assert len(set(results)) == 1


@requirement("guard:not-configurable")
@pytest.mark.parametrize("plan_mode", ["tracked", "always"])
async def test_no_setting_lets_a_child_through(connect: Connect, plan_mode: str) -> None:
    with anyio.fail_after(5):
        async with (
            connect(providers=[choosing("Approve")], plan_mode=plan_mode, ask_timeout=1e9) as world,
            world.client(Human({"q1": "1"})) as client,
        ):
            host = Host(client)
            async with host.agent(plan_mode=True) as root, host.agent(owner=root, plan_mode=True) as child:
                meta = {"approved": True, "steersman/root": True, "permission_mode": "bypassPermissions"}
                assert code(await child.call_tool("ask_user_question", ASK, meta=meta)) == "DELEGATED_CALLER"
                assert code(await child.call_tool("exit_plan_mode", PLAN, meta=meta)) == "DELEGATED_CALLER"


@requirement("guard:runtime-ownership")
async def test_a_live_child_is_refused_though_its_header_says_depth_0(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            root = await host.enter()
            first = await host.enter(agent_id="worker")
            await first.exit()
            again = await host.enter(agent_id="worker", owner=root, resume_key=first.resume_key)
            assert again.delegation_depth == 0
            assert (await ask(again)).startswith("DELEGATED_CALLER")


@requirement("guard:runtime-ownership")
async def test_an_agent_of_depth_1_that_entered_without_an_owner_may_ask(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            root = await host.enter()
            first = await host.enter(agent_id="worker", owner=root)
            await first.exit()
            again = await host.enter(agent_id="worker", resume_key=first.resume_key)
            assert (again.delegation_depth, again.parent_session) == (1, root.id)
            assert '"selected":["A"]' in await ask(again)


@requirement("guard:stale-object")
async def test_a_superseded_activation_is_a_dead_caller_and_the_new_one_asks(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            old = await host.enter(agent_id="main")
            new = await host.enter(agent_id="main", resume_key=old.resume_key, supersede=True)
            assert (await ask(old)).startswith("CALLER_NOT_LIVE")
            assert '"selected":["A"]' in await ask(new)


@requirement("guard:stale-object")
async def test_without_a_registry_nobody_is_live_and_a_direct_call_without_an_agent_is_answered() -> None:
    journal, clock = MemoryJournal(), SystemClock()
    questions = UserQuestions(None, clock=clock, journal=journal, providers=[choosing("yes")])
    registry = AgentRegistry(clock)
    live = registry.enter(registry.connect("local", "test")).activation
    with pytest.raises(UserQuestionError) as refusal:
        await questions.ask(AskRequest((Question("q", "?"),), agent=live))
    assert refusal.value.code == "CALLER_NOT_LIVE"
    direct = AskRequest((Question("q", "?", multi_select=True),), agent=None)
    with pytest.raises(UserQuestionError) as invalid:
        await questions.ask(direct)
    assert invalid.value.code == "ANSWER_INVALID"


@requirement("guard:orphan-stays-owned")
async def test_a_child_whose_owner_exited_stays_refused_and_nobody_becomes_a_root(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human(CHOICE_A)) as client:
            host = Host(client)
            root = await host.enter()
            child = await host.enter(owner=root)
            await root.exit()
            assert (await ask(child)).startswith("DELEGATED_CALLER")
            assert world.services.registry.roots("local") == []


@requirement("provider:none")
async def test_without_a_provider_a_question_fails_at_once_and_works_once_one_registers(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect(providers=[]) as world, world.client() as client, Host(client).agent() as root:
            assert (await ask(root)).startswith("NO_PROVIDER")
            world.services.questions.register(choosing("B"))
            assert '"selected":["B"]' in await ask(root)
