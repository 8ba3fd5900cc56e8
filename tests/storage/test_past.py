"""The past: shown without secrets, and gone from the disk when it is forgotten."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from steersman.human import HumanError
from steersman.messages import CallId
from steersman.questions.requests import AskRequest
from steersman.questions.types import Answer, Option, Question
from steersman.registry import Activation, Binding, Entered
from steersman.services import Services, make_services
from steersman.settings import HostSettings
from steersman.storage.journal import SqlJournal, open_journal
from tests.clock import ManualClock
from tests.requirements import requirement
from tests.storage.folds import crashed, differences, folds
from tests.storage.life import Dialog

pytestmark = pytest.mark.anyio

DAY = 86_400.0
HOST = HostSettings(plan_mode="always")


@dataclass
class Server:
    services: Services
    journal: SqlJournal
    dialog: Dialog
    clock: ManualClock
    state_dir: Path
    binding: Binding
    parent: Entered
    child: Entered

    def later(self, seconds: float) -> None:
        self.clock.wall += seconds

    async def ask(self, text: str, *, key: str | None = None) -> None:
        question = Question("q", text, options=(Option("A", f"describing {text}"),))
        await self.services.questions.ask(AskRequest((question,), self.parent.activation, text, key, host=HOST))

    async def steer(self, text: str, *, key: str | None = None) -> None:
        call = CallId(key, text) if key is not None else None
        await self.services.steering.steer(self.parent.activation, self.child.activation.id, text, "step", call=call)

    async def read(self, activation: Activation) -> None:
        """Have everything that waits for an agent read and confirmed."""
        box = self.services.mailboxes.of(activation.agent)
        for _ in range(2):
            at = "step" if box.open else "begin"
            await self.services.turns.next(activation, turn=box.turn, at=at, after=box.handed_out, wait=0)
        assert not box.unconfirmed
        assert not box.next_step

    def bytes_on_disk(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.state_dir.glob("journal.sqlite3*"))


@asynccontextmanager
async def server(state_dir: Path) -> AsyncGenerator[Server]:
    """One with a parent and its subagent."""
    clock, dialog = ManualClock(), Dialog()
    with anyio.fail_after(5):
        async with open_journal(state_dir, clock=clock) as journal:
            services = make_services([dialog], clock=clock, journal=journal)
            binding = services.registry.connect("local", "pipe:one", label="a host", host=HOST)
            parent = services.registry.enter(binding, label="the parent's label")
            child = services.registry.enter(binding, owner=parent.activation, label="the child's label")
            for entered in (parent, child):
                await services.turns.entered(entered.activation)
            yield Server(services, journal, dialog, clock, state_dir, binding, parent, child)


@requirement("journal:history")
async def test_the_past_of_a_realm_and_of_one_agent_is_told_in_order_with_its_texts(tmp_path: Path) -> None:
    async with server(tmp_path) as it:
        await it.steer("look again")
        await it.ask("Which one?")
        await it.services.human.set_plan_mode("local", it.parent.activation.id, True)
        request = AskRequest((), it.parent.activation, "p", None, host=HOST)
        await it.services.reviews.review("# The plan\n\nDo it.", request)
        await it.services.tokens.new("laptop", "local", None)
        await it.services.tokens.new("guest's", "guest", None)
        entries = await it.journal.history("local")
        assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)
        told = [(entry.kind, entry.agent_id == it.child.activation.id, entry.as_json()) for entry in entries]
        of = {kind: fields for kind, _, fields in told}
        assert of["MessageAccepted"]["text"] == "look again"
        assert next(entry.fields for entry in entries if entry.kind == "AgentEntered")["label"] == "the parent's label"
        assert of["QuestionAsked"]["plan"] == "# The plan\n\nDo it."
        asked = [entry.fields["questions"] for entry in entries if entry.kind == "QuestionAnswered"]
        assert asked[0][0]["question"] == "Which one?"
        assert of["QuestionAnswered"]["via"] == "elicitation"
        assert len(of["PlanApproved"]["plan_sha256"]) == 64
        assert of["TokenMade"]["label"] == "laptop"
        assert of["TokenMade"]["time"] == "2027-01-15T08:00:00.000+00:00"
        # Another realm's is not in it.
        assert "guest's" not in json.dumps([entry.as_json() for entry in entries])
        assert [entry.kind for entry in await it.journal.history("guest")] == ["TokenMade"]
        # One agent's, and the newest.
        only = await it.journal.history("local", it.child.activation.id)
        assert {entry.agent_id for entry in only} == {it.child.activation.id}
        assert [e.position for e in only] == [e.position for e in entries if e.agent_id == it.child.activation.id]
        assert await it.journal.history("local", limit=2) == entries[-2:]
        assert await it.journal.history("local", "nobody") == []


@requirement("journal:history")
async def test_no_secret_is_in_the_past_and_none_in_the_file_but_by_its_hash(tmp_path: Path) -> None:
    async with server(tmp_path) as it:
        await it.services.tokens.new("laptop", "local", None)
        it.dialog.mood = "suspends"
        await it.ask("Which one?", key="call 1")
        token = await it.services.tokens.new("desk", "local", None)
        secrets = [it.parent.credential, it.parent.resume_key, it.child.credential, it.child.resume_key, token]
        secrets += [handle for handle, _ in it.dialog.handles]
        assert all(len(secret) > 20 for secret in secrets)
        told = json.dumps([entry.as_json() for entry in await it.journal.history("local")])
        for secret in secrets:
            assert secret not in told
            assert secret.encode() not in it.bytes_on_disk()
        registry = vars(it.services.registry)
        hashes = [*registry["_by_credential"], *(agent.key_hash for agent in registry["_agents"].values())]
        assert len([hashed for hashed in hashes if hashed]) >= 4
        for hashed in hashes:
            assert hashed is None or hashed not in told


@requirement("journal:forget")
async def test_what_was_over_before_the_moment_is_gone_from_the_bytes_and_nothing_else(tmp_path: Path) -> None:
    async with server(tmp_path) as it:
        gone = ["old and read", "Old and answered?", "# An old plan", "an old one-shot's label", "old token"]
        kept = ["old and unread", "Old and open?", "the parent's label", "the child's label", "young and read"]
        await it.steer("old and read")
        await it.read(it.child.activation)
        it.dialog.mood = "suspends"
        await it.ask("Old and answered?", key="old call")
        [card] = it.services.human.waiting("local")
        await it.services.human.answer("local", card.card_id, [Answer("q", ("A",))])
        it.dialog.mood = "answers"
        await it.services.human.set_plan_mode("local", it.parent.activation.id, True)
        await it.services.reviews.review(
            "# An old plan\n\nDo it.", AskRequest((), it.parent.activation, "p", None, host=HOST)
        )
        once = it.services.registry.enter(it.binding, mode="one-shot", label="an old one-shot's label")
        await it.services.turns.entered(once.activation)
        await it.services.turns.exit(once.activation, "completed", "")
        await it.services.tokens.new("old token", "local", None)
        await it.services.tokens.revoke("old token")
        it.dialog.mood = "waits"
        async with anyio.create_task_group() as group:
            group.start_soon(it.ask, "Old and open?")
            await anyio.wait_all_tasks_blocked()
            await it.steer("old and unread")
            it.later(31 * DAY)
            it.dialog.mood = "answers"
            second = it.services.registry.enter(it.binding, owner=it.parent.activation, label="second")
            await it.services.turns.entered(second.activation)
            await it.services.steering.steer(it.parent.activation, second.activation.id, "young and read", "step")
            await it.read(second.activation)
            await it.journal.append()
            before = folds(it.services)
            gone += before["handles"]
            on_disk = it.bytes_on_disk()
            for words in [*gone, *kept]:
                assert words.encode() in on_disk, words

            await it.journal.forget(30 * DAY)

            on_disk = it.bytes_on_disk()
            for words in gone:
                assert words.encode() not in on_disk, words
            for words in kept:
                assert words.encode() in on_disk, words
            assert not differences(before, folds(it.services))
            async with crashed(tmp_path, it.clock, [it.dialog]) as after:
                # The old label is gone from the next server, and the old call and its handle are not known again there.
                unlike = differences(folds(it.services), folds(after))
                assert unlike.keys() == {"agents", "cards", "handles", "keys", "known"}
                assert [card.request.questions[0].question for card in after.questions.open_cards("local")] == [
                    "Old and open?"
                ]
            # The one that forgot goes on.
            await it.steer("after it")
            assert (await it.journal.history("local"))[-1].fields["text"] == "after it"
            group.cancel_scope.cancel()


@requirement("journal:forget")
async def test_what_was_forgotten_gives_its_room_back_and_no_position_again(tmp_path: Path) -> None:
    async with server(tmp_path) as it:
        for number in range(20):
            await it.steer(f"{number} " + "x" * 100_000)
            await it.read(it.child.activation)
        newest = (await it.journal.history("local"))[-1].position
        full = len(it.bytes_on_disk())
        it.later(DAY + 1)
        await it.journal.forget(DAY)
        assert len(it.bytes_on_disk()) < full / 10
        assert await it.journal.history("local") == []
        async with crashed(tmp_path, it.clock, [it.dialog]) as after:
            assert (await _position_of_next(after)) > newest


async def _position_of_next(services: Services) -> int:
    await services.tokens.new("next", "local", None)
    journal = services.journal
    assert isinstance(journal, SqlJournal)
    return (await journal.history("local"))[-1].position


@requirement("journal:forget")
async def test_a_late_answer_to_what_was_orphaned_long_ago_is_still_possible(tmp_path: Path) -> None:
    async with server(tmp_path) as it:
        it.dialog.mood = "waits"
        async with anyio.create_task_group() as group:
            group.start_soon(it.ask, "Old and open?")
            await anyio.wait_all_tasks_blocked()
            await it.journal.append()
            async with crashed(tmp_path, it.clock, [it.dialog]) as after:
                journal = after.journal
                assert isinstance(journal, SqlJournal)
                it.later(100 * DAY)
                await journal.forget(DAY)
                [card] = after.human.waiting("local")
                assert card.orphaned
                with pytest.raises(HumanError) as refused:
                    await after.human.answer("local", card.card_id, [])
                assert refused.value.code == "INVALID"
                await after.human.answer("local", card.card_id, [Answer("q", ("A",))])
                assert (await journal.history("local"))[-1].kind == "QuestionAnsweredLate"
            group.cancel_scope.cancel()
