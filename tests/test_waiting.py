"""While the human thinks: nothing times out, nothing is taken back, and a retry asks nothing twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult, CancelledNotification, CancelledNotificationParams, InputRequiredResult

from steersman.errors import UserQuestionError
from steersman.journal import QuestionAsked, QuestionClosed
from steersman.questions.cards import KEPT_HANDLES, CardStore, answer_digest
from steersman.questions.requests import AskRequest, Resumption
from steersman.questions.types import Question
from steersman.registry import MAX_OPEN_CALLS
from steersman.services import make_services
from steersman.tool_calls import PROGRESS_SECONDS
from steersman_client import Agent, Host
from tests.human import Dialog, Human
from tests.requirements import requirement
from tests.world import Connect, World, code, error, in_era, over, text

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
OTHER_ASK: dict[str, Any] = {"questions": [{"id": "q", "question": "What now?"}]}
LEGACY = in_era("legacy")
MODERN = in_era("modern")


class Calls:
    """Calls made in the background, whose results a test looks at later."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self.results: list[CallToolResult] = []
        self._changed = anyio.Event()

    def start(self, client: Client, arguments: dict[str, Any] = ASK, **options: Any) -> anyio.CancelScope:
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                self.results.append(await client.call_tool("ask_user_question", arguments, **options))
                self._changed.set()

        self._group.start_soon(call)
        return scope

    async def first(self, count: int = 1) -> list[CallToolResult]:
        while len(self.results) < count:
            self._changed = anyio.Event()
            await self._changed.wait()
        return self.results


async def until_no_card(world: World) -> None:
    """Wait until every card is withdrawn: by looking again whenever the event loop has turned."""
    while world.services.questions.open_cards("local"):
        await anyio.lowlevel.checkpoint()


@requirement("ask:no-deadline")
async def test_a_question_open_for_45_minutes_is_still_open_and_answered(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            calls.start(client)
            dialog = await human.next()
            world.clock.advance(45 * 60)
            assert len(world.services.questions.open_cards("local")) == 1
            dialog.accept(q1="2")
            [result] = await calls.first()
            assert text(result) == '{"answers":[{"id":"q","selected":["B"]}],"via":"elicitation"}'
            assert world.services.questions.open_cards("local") == []


@requirement("ask:timeout")
async def test_with_a_configured_deadline_an_unanswered_question_times_out(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with (
            connect(ask_timeout=60.0) as world,
            world.client(human) as client,
            anyio.create_task_group() as group,
        ):
            calls = Calls(group)
            calls.start(client)
            dialog = await human.next()
            if world.transport.era == "legacy":
                await world.clock.until_sleepers()
            world.clock.advance(61)
            if world.transport.era == "modern":
                dialog.accept(q1="1")
            [result] = await calls.first()
            assert code(result) == "ASK_TIMED_OUT"
            assert world.services.questions.open_cards("local") == []


@requirement("ask:progress")
@LEGACY
async def test_a_waiting_call_reports_progress_every_ten_seconds(connect: Connect) -> None:
    human = Human()
    reports: list[float] = []
    reported = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        reported.set()

    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            calls.start(client, progress_callback=on_progress)
            dialog = await human.next()
            for tick in range(1, 4):
                await world.clock.until_sleepers()
                reported = anyio.Event()
                world.clock.advance(PROGRESS_SECONDS)
                await reported.wait()
                assert reports == list(range(1, tick + 1))
            dialog.accept(q1="1")
            assert not (await calls.first())[0].is_error


@requirement("ask:withdrawn")
@LEGACY
async def test_a_cancelled_call_withdraws_its_card_everywhere_and_touches_no_other(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            cancelled = calls.start(client)
            first = await human.next()
            calls.start(client, OTHER_ASK)
            second = await human.next()
            cancelled.cancel()
            await first.withdrawn.wait()
            [left] = world.services.questions.open_cards("local")
            assert left.request.questions[0].question == "What now?"
            second.accept(q1="on")
            assert '"custom":"on"' in text((await calls.first())[0])
            closed = [event for event in world.events if isinstance(event, QuestionClosed)]
            assert [event.code for event in closed] == ["ASK_ABORTED"]


@requirement("ask:withdrawn")
@LEGACY
async def test_a_lost_host_withdraws_its_questions_and_no_others(connect: Connect) -> None:
    mine, lost = Human(), Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(mine) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            calls.start(client)
            dialog = await mine.next()
            with anyio.CancelScope() as host:
                async with world.client(lost) as leaving, anyio.create_task_group() as inner:
                    Calls(inner).start(leaving, OTHER_ASK)
                    await lost.next()
                    assert len(world.services.questions.open_cards("local")) == 2
                    host.cancel()
            while len(world.services.questions.open_cards("local")) > 1:
                await anyio.lowlevel.checkpoint()
            dialog.accept(q1="1")
            assert not (await calls.first())[0].is_error


@requirement("ask:withdrawn")
@MODERN
async def test_a_modern_call_that_is_dropped_between_two_rounds_leaves_nothing_open_on_the_wire(
    connect: Connect,
) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            dropped = calls.start(client)
            await human.next()
            dropped.cancel()
            # The next question of the same agent is asked and answered as if nothing had been.
            calls.start(client, OTHER_ASK)
            (await human.next()).accept(q1="go")
            assert '"custom":"go"' in text((await calls.first())[0])


@requirement("ask:agent-ended")
@LEGACY
async def test_a_question_whose_agent_exits_is_withdrawn(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter()
            calls = Calls(group)
            calls.start(client, meta=agent.meta)
            dialog = await human.next()
            await agent.exit("aborted")
            [result] = await calls.first()
            assert code(result) == "ASK_ABORTED"
            await dialog.withdrawn.wait()


@requirement("ask:agent-ended")
@over("memory", "stdio", "pipe", era="modern")
async def test_a_form_between_two_rounds_is_withdrawn_when_nobody_can_come_back_with_its_answer(
    connect: Connect,
) -> None:
    with anyio.fail_after(5):
        async with connect() as world:
            async with world.client(Human()) as client:
                await first_round(client)
                [card] = world.services.questions.open_cards("local")
                assert world.services.questions.newest_open() == card.shown_since
            await until_no_card(world)
            assert QuestionClosed("local", world.services.registry.list("local")[0].id, card.id, "ASK_ABORTED") in (
                world.events
            )


@requirement("ask:agent-ended")
@MODERN
async def test_a_form_of_an_agent_that_can_be_entered_again_waits_for_it_but_keeps_no_server(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            host = Host(client)
            agent = await host.enter()
            state = (await first_round(client, meta=agent.meta)).request_state
            await agent.exit("aborted")
            assert len(world.services.questions.open_cards("local")) == 1
            assert world.services.questions.newest_open() is None
            again = await host.enter(agent_id=agent.id, resume_key=agent.resume_key)
            assert not (await second_round(client, state, {"q1": "1"}, meta=again.meta)).is_error


@requirement("ask:server-goes")
@LEGACY
async def test_when_the_server_goes_away_open_questions_are_aborted_and_new_ones_refused(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            calls.start(client)
            await human.next()
            world.services.questions.withdraw_all()
            assert code((await calls.first())[0]) == "ASK_ABORTED"
            assert code(await client.call_tool("ask_user_question", ASK)) == "ASK_ABORTED"


@requirement("ask:cancel-after-answer", "ask:stray-cancel")
@LEGACY
async def test_cancels_for_finished_and_unknown_calls_change_nothing(connect: Connect) -> None:
    human = Human({"q1": "1"})
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client:
            assert not (await client.call_tool("ask_user_question", ASK)).is_error
            for request_id in (1, 2, 3, 999, "x"):
                cancel = CancelledNotification(params=CancelledNotificationParams(request_id=request_id))
                await client.session.send_notification(cancel)
            assert not (await client.call_tool("ask_user_question", ASK)).is_error
            assert not any(isinstance(event, QuestionClosed) for event in world.events)


@requirement("ask:not-blocking")
async def test_while_a_question_is_open_everything_else_is_served_at_once(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            calls.start(client)
            dialog = await human.next()
            assert len((await client.list_tools()).tools) == 3
            assert code(await client.call_tool("steer_subagent", {"subagent_id": "x", "message": "y"}))
            await client.get_prompt("plan")
            assert not dialog.withdrawn.is_set()
            dialog.accept(q1="1")
            assert not (await calls.first())[0].is_error


# --- the modern handle ----------------------------------------------------------------------------------------------


async def first_round(client: Client, arguments: dict[str, Any] = ASK, **options: Any) -> InputRequiredResult:
    result = await client.session.call_tool("ask_user_question", arguments, allow_input_required=True, **options)
    assert isinstance(result, InputRequiredResult)
    return result


async def second_round(
    client: Client, state: str | None, content: dict[str, Any] | None, arguments: dict[str, Any] = ASK, **options: Any
) -> CallToolResult:
    answers: Any = None if content is None else {"answers": {"action": "accept", "content": content}}
    result = await client.session.call_tool(
        "ask_user_question",
        arguments,
        input_responses=answers,
        request_state=state,
        allow_input_required=True,
        **options,
    )
    assert isinstance(result, CallToolResult)
    return result


@requirement("ask:slow-modern", "ask:lost-reply", "ask:bound-handle")
@MODERN
async def test_an_answer_after_11_minutes_is_taken_and_the_same_one_again_gets_the_same_result(
    connect: Connect,
) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            asked = await first_round(client)
            world.clock.advance(11 * 60)
            taken = await second_round(client, asked.request_state, {"q1": "2"})
            assert '"selected":["B"]' in text(taken)
            again = await second_round(client, asked.request_state, {"q1": "2"})
            assert again == taken
            other = error(await second_round(client, asked.request_state, {"q1": "1"}))
            assert other["code"] == "ANSWER_INVALID"
            assert len([event for event in world.events if isinstance(event, QuestionAsked)]) == 1


@requirement("ask:bound-handle")
@MODERN
async def test_a_handle_is_good_for_its_own_call_and_agent_only(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            host = Host(client)
            one, two = await host.enter(), await host.enter()
            asked = await first_round(client, meta=one.meta)
            state, answer = asked.request_state, {"q1": "1"}
            assert code(await second_round(client, state, answer, meta=two.meta)) == "ANSWER_INVALID"
            assert code(await second_round(client, state, answer, OTHER_ASK, meta=one.meta)) == "ANSWER_INVALID"
            assert code(await second_round(client, None, answer, meta=one.meta)) == "ANSWER_INVALID"
            assert code(await second_round(client, "forged", answer, meta=one.meta)) == "ANSWER_INVALID"
            assert code(await second_round(client, state, None, meta=one.meta)) == "ANSWER_INVALID"
            # None of that used it up.
            assert not (await second_round(client, state, answer, meta=one.meta)).is_error


@requirement("ask:bound-handle")
@MODERN
async def test_an_answer_from_an_agent_that_came_to_be_owned_is_refused(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            host = Host(client)
            root = await host.enter()
            worker = await host.enter(agent_id="worker")
            asked = await first_round(client, meta=worker.meta)
            owned = await host.enter(agent_id="worker", owner=root, resume_key=worker.resume_key, supersede=True)
            answer = {"q1": "1"}
            assert code(await second_round(client, asked.request_state, answer, meta=owned.meta)) == "DELEGATED_CALLER"
            assert code(await second_round(client, asked.request_state, answer, meta=worker.meta)) == "CALLER_NOT_LIVE"


@requirement("ask:slow-modern", "registry:lease")
@MODERN
@pytest.mark.parametrize("minutes", [2, 11, 600])
async def test_an_agent_with_a_lease_waits_for_its_human_too(connect: Connect, minutes: int) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            agent = await Host(client).enter()
            asked = await first_round(client, meta=agent.meta)
            world.clock.advance(minutes * 60)
            answered = await second_round(client, asked.request_state, {"q1": "1"}, meta=agent.meta)
            assert not answered.is_error
            world.clock.advance(89)
            assert world.services.registry.roots("local") != []
            world.clock.advance(2)
            left = 0 if world.transport.wire == "http" else 1
            assert len(world.services.registry.roots("local")) == left


# --- the same call again --------------------------------------------------------------------------------------------

KEYS = ["steersman/idempotencyKey", "claudecode/toolUseId", "callId"]


@requirement("ask:joins")
@LEGACY
@pytest.mark.parametrize("key", KEYS)
async def test_a_call_retried_under_its_id_joins_its_own_card(connect: Connect, key: str) -> None:
    human = Human()
    meta: Any = {key: "call-1"}
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter()
            calls = Calls(group)
            calls.start(client, meta={**meta, **agent.meta})
            dialog = await human.next()
            calls.start(client, meta={**meta, **agent.meta})
            calls.start(client, OTHER_ASK, meta={"callId": "call-2", **agent.meta})
            await human.next()
            assert len(world.services.questions.open_cards("local")) == 2
            dialog.accept(q1="2")
            one, two = await calls.first(2)
            assert one == two
            assert '"selected":["B"]' in text(one)
            # Its reply lost, the call comes once more.
            again = await agent.call_tool("ask_user_question", ASK, meta=meta)
            assert again == one
            assert len(human.dialogs) == 2
            human.dialogs[1].accept(q1="x")


@requirement("ask:joins")
@LEGACY
async def test_when_the_first_call_is_cancelled_the_retry_carries_the_question_on(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            calls = Calls(group)
            first = calls.start(client, meta={"claudecode/toolUseId": "t1"})
            dialog = await human.next()
            calls.start(client, meta={"claudecode/toolUseId": "t1"})
            first.cancel()
            await dialog.withdrawn.wait()
            second = await human.next()
            assert len(world.services.questions.open_cards("local")) == 1
            second.accept(q1="1")
            assert not (await calls.first())[0].is_error


@requirement("ask:joins", "ask:agent-ended")
@LEGACY
@pytest.mark.parametrize(("end", "expected"), [("exit", "CALLER_NOT_LIVE"), ("server", "ASK_ABORTED")])
async def test_a_retry_that_waited_for_a_withdrawn_card_asks_nothing_for_an_agent_that_ended(
    connect: Connect, end: str, expected: str
) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            agent = await Host(client).enter()
            calls = Calls(group)
            for _ in range(2):
                calls.start(client, meta={"claudecode/toolUseId": "t1", **agent.meta})
            await human.next()
            # Both calls are in, the second behind the first.
            [live] = world.services.registry.roots("local")
            while live.open_calls < 2:
                await anyio.lowlevel.checkpoint()
            if end == "exit":
                await agent.exit("aborted")
            else:
                world.services.questions.withdraw_all()
            codes = {code(result) for result in await calls.first(2)}
            assert codes == {"ASK_ABORTED", expected}
            assert len(human.dialogs) == 1


@requirement("ask:joins")
@MODERN
async def test_a_modern_first_round_sent_twice_is_one_card(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            meta: Any = {"claudecode/toolUseId": "t1"}
            lost = await first_round(client, meta=meta)
            seen = await first_round(client, meta=meta)
            assert len(world.services.questions.open_cards("local")) == 1
            answered = await second_round(client, seen.request_state, {"q1": "1"}, meta=meta)
            assert not answered.is_error
            late = await second_round(client, lost.request_state, {"q1": "2"}, meta=meta)
            assert code(late) == "ANSWER_INVALID"


@requirement("ask:bound-handle", "ask:joins")
@MODERN
async def test_a_handle_is_no_way_to_an_answer_that_came_another_way(connect: Connect) -> None:
    legacy_human = Human({"q1": "1"})
    meta: Any = {"claudecode/toolUseId": "t1"}
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            agent = await Host(client).enter()
            meta = {**meta, **agent.meta}
            asked = await first_round(client, meta=meta)
            async with world.client(legacy_human, era="legacy") as elsewhere:
                taken = await elsewhere.call_tool("ask_user_question", ASK, meta=meta)
            assert '"selected":["A"]' in text(taken)
            for content in ({"q1": "2"}, {"q1": "1"}):
                late = await second_round(client, asked.request_state, content, meta=meta)
                assert code(late) == "ANSWER_INVALID"


@requirement("ask:bound-handle")
async def test_an_answer_that_is_no_unicode_is_answer_invalid_and_leaves_the_handle_good() -> None:
    services = make_services([])
    registry = services.registry
    agent = registry.enter(registry.connect("local", "test")).activation
    store = CardStore(services.clock)
    request = AskRequest((Question("q", "?"),), agent, call_digest="d")
    handle = store.new_handle(store.add(request))
    for answer in ("\ud800", {"\udfff": 1}):
        with pytest.raises(UserQuestionError) as refusal:
            answer_digest(answer)
        assert refusal.value.code == "ANSWER_INVALID"
    assert store.find(replace(request, resumption=Resumption(handle, {"action": "accept"}))) is not None


@requirement("ask:memory")
async def test_what_nobody_answers_is_forgotten_beyond_a_bound_the_oldest_first() -> None:
    services = make_services([])
    registry = services.registry
    agent = registry.enter(registry.connect("local", "test")).activation
    store = CardStore(services.clock)
    requests = [AskRequest((Question("q", "x" * 1_000_000),), agent, call_digest=str(number)) for number in range(10)]
    handles = [store.new_handle(store.add(request)) for request in requests]

    def known(number: int) -> bool:
        try:
            return store.find(replace(requests[number], resumption=Resumption(handles[number], {}))) is not None
        except UserQuestionError:
            return False

    assert [known(number) for number in range(10)] == [False] * 2 + [True] * 8
    entry = store.find(replace(requests[9], resumption=Resumption(handles[9], {})))
    assert entry is not None
    more = [store.new_handle(entry) for _ in range(KEPT_HANDLES)]
    assert not known(9)
    assert store.find(replace(requests[9], resumption=Resumption(more[0], {}))) is entry
    store.settle(entry, UserQuestionError("ASK_CANCELLED"))
    assert entry.characters == 0


@requirement("ask:joins")
async def test_the_same_id_of_another_agent_is_another_call(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            host = Host(client)
            for agent in (await host.enter(), await host.enter()):
                assert not (await ask_as(agent, "same")).is_error
            assert len([event for event in world.events if isinstance(event, QuestionAsked)]) == 2


@requirement("ask:key-other-arguments")
async def test_one_call_id_with_other_arguments_is_refused(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human({"q1": "1"})) as client:
            agent = await Host(client).enter()
            await ask_as(agent, "same")
            again = await agent.call_tool("ask_user_question", OTHER_ASK, meta={"steersman/idempotencyKey": "same"})
            assert code(again) == "INVALID_ARGUMENTS"
            wrong = await agent.call_tool("ask_user_question", ASK, meta={"steersman/idempotencyKey": 7})
            assert code(wrong) == "INVALID_ARGUMENTS"


async def ask_as(agent: Agent, key: str) -> CallToolResult:
    return await agent.call_tool("ask_user_question", ASK, meta={"steersman/idempotencyKey": key})


@requirement("ask:open-call-limit")
@over("memory")
async def test_the_257th_open_call_of_an_agent_is_over_the_limit(connect: Connect) -> None:
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            if world.transport.era == "modern":
                return
            agent, other = await Host(client).enter(), await Host(client).enter()
            calls = Calls(group)
            dialogs: list[Dialog] = []
            for _ in range(MAX_OPEN_CALLS):
                calls.start(client, meta=agent.meta)
                dialogs.append(await human.next())
            over = error(await agent.call_tool("ask_user_question", ASK))
            assert (over["code"], over["reason"]) == (
                "LIMIT_EXCEEDED",
                "the agent has 256 open calls; allowed are 256.",
            )
            assert code(await other.call_tool("exit_plan_mode", {"plan": "# A\nb"})) == "NOT_IN_PLAN_MODE"
            for dialog in dialogs:
                dialog.accept(q1="1")
            await calls.first(MAX_OPEN_CALLS)
