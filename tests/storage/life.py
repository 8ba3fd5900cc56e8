"""A server's life in random steps: everything that can happen to what the journal keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, get_args

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from steersman.agents import TOKEN_KEY, Outcome
from steersman.errors import SteersmanError, UserQuestionError
from steersman.human import HumanError
from steersman.messages import CallId
from steersman.questions.requests import AskRequest, Card, HandleMaker, Reply, Resumption, Suspended
from steersman.questions.types import Answer, Option, PlanReview, Question, Via
from steersman.registry import Activation, Binding, Entered
from steersman.services import Services
from steersman.settings import HostSettings
from steersman.tokens import TokenError
from steersman.turns import At
from tests.clock import ManualClock

Mood = Literal["answers", "waits", "suspends", "declines", "fails"]
"""What the host's dialog does with a card."""
MOODS: Final = get_args(Mood)
BOUNDARIES: Final = get_args(At)
OUTCOMES: Final = get_args(Outcome)
TEXTS: Final = ("", "go on", "Ünï\x00cödé\u2028", "\U0001f9ed", "x" * 5000)
HOST: Final = HostSettings(plan_mode="always")

Step = tuple[str, int, int, int]
"""An operation by its name, and three numbers that it makes of what it can."""


class Dialog:
    """A host's dialog, in the mood that the next card finds it in."""

    name: Via = "elicitation"

    def __init__(self) -> None:
        self.mood: Mood = "answers"
        self.handles: list[tuple[str, AskRequest]] = []

    def obstacle(self, request: AskRequest) -> str | None:
        return None

    async def ask(self, card: Card, handle: HandleMaker) -> Reply | Suspended:
        match self.mood:
            case "answers":
                return _answers(card.request.questions)
            case "suspends":
                self.handles.append((handle(), card.request))
                return Suspended(None)
            case "declines":
                raise UserQuestionError("ASK_DECLINED", reason=TEXTS[2])
            case "fails":
                return []
            case "waits":
                await anyio.sleep_forever()
                raise AssertionError

    def resume(self, card: Card, answer: object) -> Reply:
        return _answers(card.request.questions) if answer == "good" else []


def _answers(questions: Sequence[Question]) -> Reply:
    return [
        Answer(each.id, (each.options[0].label,)) if each.options else Answer(each.id, custom="\u2028 words")
        for each in questions
    ]


class Life:
    """One server, and hosts that do things to it."""

    def __init__(self, services: Services, dialog: Dialog, clock: ManualClock, group: TaskGroup) -> None:
        self._services = services
        self._dialog = dialog
        self._clock = clock
        self._group = group
        self._keys = ("pipe:one", "pipe:two", f"{TOKEN_KEY}one")
        self._bindings: dict[str, Binding] = {}
        self._entered: list[tuple[Activation, str]] = []
        """With their resume keys; dead ones too."""
        self._asked: list[anyio.CancelScope] = []

    async def take(self, step: Step) -> None:
        """Do one thing; refusals are part of life."""
        name, *numbers = step
        with suppress(SteersmanError, HumanError, TokenError):
            await getattr(self, name)(*numbers)
        for _ in range(5):
            # What goes on by itself waits for nothing but the journal.
            await anyio.lowlevel.checkpoint()
            await self._services.journal.append()

    # --- connections -------------------------------------------------------------------------------------------------

    def _binding(self, number: int) -> Binding:
        key = self._keys[number % len(self._keys)]
        if key not in self._bindings:
            leased = key.startswith(TOKEN_KEY)
            binding = self._services.registry.connect("local", key, label=key, leased=leased, host=HOST)
            self._bindings[key] = binding
        return self._bindings[key]

    async def break_off(self, which: int, closes: int, _: int) -> None:
        key = self._keys[which % 2]
        binding = self._bindings.pop(key, None)
        if binding is not None and closes % 2:
            self._services.registry.close(binding)
        elif binding is not None:
            self._services.registry.disconnect(binding)

    async def wait(self, seconds: int, _: int, __: int) -> None:
        self._clock.advance(seconds * 20)
        self._clock.wall += seconds * 20
        self._services.registry.list("local")

    # --- agents ------------------------------------------------------------------------------------------------------

    def _agent(self, number: int) -> Activation:
        agents = [activation for activation, _ in self._entered] or [self._services.registry.nobody]
        return agents[-1 - number % len(agents)]

    async def enter(self, where: int, owner: int, how: int) -> None:
        found = self._services.registry.enter(
            self._binding(where),
            owner=self._agent(owner) if owner % 3 and self._entered else None,
            label=TEXTS[how % len(TEXTS)][:64],
            mode="one-shot" if how % 3 == 0 else "continuable",
        )
        await self._note(found)

    async def enter_again(self, where: int, which: int, how: int) -> None:
        if self._entered:
            old, key = self._entered[-1 - which % len(self._entered)]
            binding = self._binding(where)
            found = self._services.registry.enter(binding, agent_id=old.id, resume_key=key, supersede=how % 2 == 0)
            await self._note(found)

    async def _note(self, found: Entered) -> None:
        self._entered.append((found.activation, found.resume_key))
        await self._services.turns.entered(found.activation)

    async def call(self, where: int, which: int, how: int) -> None:
        registry, binding = self._services.registry, self._binding(where)
        if how % 2:
            self._entered.append((registry.enter_root(binding), ""))
            return
        owner = f"codex:{which % 2}" if how % 4 else None
        activation = registry.enter_profiled(binding, f"codex:{2 + which % 2}", owner)
        if activation is not None:
            self._entered.append((activation, ""))

    async def exit(self, which: int, how: int, _: int) -> None:
        await self._services.turns.exit(self._agent(which), OUTCOMES[how % len(OUTCOMES)], TEXTS[how % len(TEXTS)])

    # --- messages and turns ------------------------------------------------------------------------------------------

    async def steer(self, who: int, whom: int, what: int) -> None:
        caller = self._agent(who)
        subagents = list(caller.agent.subagents)
        call = CallId(f"call {what % 4}", str(what % 2)) if what % 3 else None
        if subagents:
            target, text = subagents[whom % len(subagents)], TEXTS[what % len(TEXTS)]
            await self._services.steering.steer(caller, target, text, "turn" if what % 2 else "step", call=call)

    async def send(self, whom: int, what: int, _: int) -> None:
        mode: Literal["turn", "step"] = "turn" if what % 2 else "step"
        await self._services.human.send("local", self._agent(whom).id, TEXTS[what % len(TEXTS)], mode)

    async def interrupt(self, whom: int, _: int, __: int) -> None:
        await self._services.human.interrupt("local", self._agent(whom).id)

    async def work(self, who: int, at: int, after: int) -> None:
        activation = self._agent(who)
        box = self._services.mailboxes.of(activation.agent)
        boundary = BOUNDARIES[at % len(BOUNDARIES)]
        read = max(0, box.handed_out - after % 3)
        await self._services.turns.next(activation, turn=box.turn, at=boundary, after=read, wait=0)

    async def plan(self, who: int, active: int, _: int) -> None:
        await self._services.human.set_plan_mode("local", self._agent(who).id, active % 2 == 0)

    # --- questions ---------------------------------------------------------------------------------------------------

    async def ask(self, who: int, mood: int, what: int) -> None:
        options = (Option("A"), Option("B", "\ud800")) if what % 2 else ()
        question = Question("q", TEXTS[1 + what % 3], options=options, multi_select=what % 5 == 0)
        key = f"ask {what % 4}" if what % 3 else None
        await self._begin(mood, AskRequest((question,), self._agent(who), str(what % 2), key, host=HOST))

    async def review(self, who: int, mood: int, what: int) -> None:
        request = AskRequest(
            (), self._agent(who), f"plan {what % 2}", f"plan {what % 4}" if what % 3 else None, host=HOST
        )
        await self._begin(mood, request, f"# Plan {what % 2}\n\n{TEXTS[2]}")

    async def _begin(self, mood: int, request: AskRequest, plan: str | None = None) -> None:
        """Ask, until it is answered or nothing but the human can go on."""
        self._dialog.mood = MOODS[mood % len(MOODS)]
        if plan is None:
            self._start(lambda: self._services.questions.ask(request))
        else:
            self._start(lambda: self._services.reviews.review(plan, request))

    def _start(self, call: Callable[[], Awaitable[object]]) -> None:
        scope = anyio.CancelScope()
        self._asked.append(scope)

        async def run() -> None:
            with scope, suppress(SteersmanError):
                await call()

        self._group.start_soon(run)

    async def cancel(self, which: int, _: int, __: int) -> None:
        if self._asked:
            self._asked[which % len(self._asked)].cancel()

    async def come_back(self, which: int, how: int, who: int) -> None:
        if not self._dialog.handles:
            return
        handle, request = self._dialog.handles[-1 - which % len(self._dialog.handles)]
        asker = request.agent if who % 4 or request.agent is None else self._agent(who)
        again = AskRequest(
            request.questions,
            asker.agent.current or asker if asker is not None else None,
            request.call_digest,
            request.call_key,
            intent=PlanReview(request.intent.plan, request.intent.approve) if request.intent is not None else None,
            resumption=Resumption(handle, ("good", "bad", None)[how % 3]),
            host=HOST,
        )
        self._start(lambda: self._services.questions.ask(again))

    async def answer(self, which: int, how: int, _: int) -> None:
        human = self._services.human
        waiting = human.waiting("local")
        if waiting:
            card = waiting[which % len(waiting)]
            if how % 3:
                await human.answer("local", card.card_id, _answers(card.questions))
            else:
                error = UserQuestionError("ASK_DECLINED" if how % 2 else "ASK_CANCELLED", reason=TEXTS[how % 4])
                await human.refuse("local", card.card_id, error)

    # --- tokens ------------------------------------------------------------------------------------------------------

    async def token(self, label: int, how: int, _: int) -> None:
        tokens = self._services.tokens
        if how % 3:
            await tokens.new(f"label {label % 3}", "local" if how % 2 else "guest", "codex" if how % 5 else None)
        else:
            await tokens.revoke(f"label {label % 3}")


NAMES: Final = (
    "enter", "enter", "enter_again", "call", "exit", "break_off", "wait",
    "steer", "steer", "send", "interrupt", "work", "work", "work", "plan",
    "ask", "ask", "review", "review", "cancel", "come_back", "answer", "token",
)  # fmt: skip
"""The steps there are; what stands here more than once happens more often."""
