"""What the human does at a page or a terminal of ours: sees what waits, answers it, and speaks to agents."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import anyio

from steersman.canonical import compact
from steersman.contract.files import load
from steersman.errors import SubagentError, ToolError, UserQuestionError
from steersman.journal import Journal, QuestionAnsweredLate, QuestionClosed
from steersman.messages import Receipt, SteerMode
from steersman.plans import PlanMode, PlanModeChange
from steersman.providers.console import ConsoleProvider
from steersman.questions.requests import Card, CardState, Reply
from steersman.questions.service import UserQuestions
from steersman.questions.types import Answer, Question
from steersman.registry import Agent, AgentRegistry
from steersman.steering import Steering

Told = Literal["answered", "late", "dismissed"]
"""The asker has the answer; it reads it as a message; the card is gone."""


class HumanError(Exception):
    """What the human wanted could not be done. The text says why, as whole sentences."""

    def __init__(self, code: Literal["UNKNOWN", "ELSEWHERE", "INVALID", "UNREACHABLE"], text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Waiting:
    """A card as the human sees it."""

    card_id: str
    agent: Agent
    host: str
    """What the agent came over, in words."""
    asked_at: float
    """Seconds since the epoch."""
    orphaned: bool
    """Whether the server that had it open died: an answer is a message to the agent."""
    questions: Sequence[Question]
    plan: str | None
    """The whole plan, if the card reviews one."""


class Human:
    """The human of each realm."""

    def __init__(
        self,
        registry: AgentRegistry,
        questions: UserQuestions,
        steering: Steering,
        plan_mode: PlanMode,
        console: ConsoleProvider,
        *,
        journal: Journal,
    ) -> None:
        self._registry = registry
        self._questions = questions
        self._steering = steering
        self._plan_mode = plan_mode
        self._console = console
        self._journal = journal

    @contextmanager
    def attend(self, realm: str) -> Generator[None]:
        """Be there: as long as it is held, questions can be put before the human here."""
        with self._console.attend(realm):
            yield

    def changed(self) -> anyio.Event:
        """What is set when a card comes or goes next."""
        return self._questions.changed()

    def waiting(self, realm: str) -> Sequence[Waiting]:
        """What waits for the human, oldest first."""
        cards = sorted(self._questions.open_cards(realm), key=lambda card: card.shown_since)
        return [shown for card in cards if (shown := _show(card)) is not None]

    def state(self, realm: str, card_id: str) -> tuple[CardState, Waiting | None]:
        """What became of a card, and what it asks as long as that is kept. Raises `UNKNOWN`."""
        card = self._known(realm, card_id)
        return card.state, _show(card) if card.request.questions else None

    async def answer(self, realm: str, card_id: str, reply: Reply) -> Told:
        """Answer a card: all its questions, in any order.

        Returns:
            `answered`; `late` if nobody waits any more, so that the agent reads the answer as a message.

        Raises:
            HumanError: `UNKNOWN`; `ELSEWHERE` if another answer came first; `INVALID` for what does not answer what
                was asked; `UNREACHABLE` for a late answer to an agent that reads no messages. Nothing has changed then.
        """
        card = self._find(realm, card_id)
        try:
            answers = self._questions.check(card, reply)
        except UserQuestionError as error:
            raise HumanError("INVALID", error.reason or "It does not answer what was asked.") from None
        if await self._questions.settle(card, answers):
            return "answered"
        self._check_open(card)
        await self._answer_late(card, answers)
        return "late"

    async def refuse(self, realm: str, card_id: str, error: UserQuestionError) -> Told:
        """Dismiss a card (`ASK_CANCELLED`) or decline to answer it (`ASK_DECLINED`). Raises as `answer`."""
        card = self._find(realm, card_id)
        if await self._questions.settle(card, error):
            return "answered"
        self._check_open(card)
        agent = _agent_of(card)
        self._questions.let_go(card)
        await self._journal.append(QuestionClosed(agent.realm, agent.id, card.id, error.code, error.reason))
        return "dismissed"

    async def send(self, realm: str, agent_id: str, text: str, mode: SteerMode) -> Receipt:
        """Send a message to any agent of the realm.

        Raises:
            HumanError: `UNKNOWN` or `UNREACHABLE`.
            ToolError: `LIMIT_EXCEEDED` for a mailbox that is full.
        """
        receipt = self._tell(self._agent(realm, agent_id), text, mode)
        await self._journal.append()
        return receipt

    async def interrupt(self, realm: str, agent_id: str) -> int | None:
        """Stop the turn an agent is in. Returns its number; none if no turn runs. Raises `UNKNOWN`."""
        turn = self._steering.stop(self._agent(realm, agent_id))
        await self._journal.append()
        return turn

    async def set_plan_mode(self, realm: str, agent_id: str, active: bool) -> PlanModeChange:
        """Turn an agent's plan mode on or off. Raises `UNKNOWN`."""
        return await self._plan_mode.set(self._agent(realm, agent_id), active)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _find(self, realm: str, card_id: str) -> Card:
        card = self._known(realm, card_id)
        self._check_open(card)
        return card

    def _known(self, realm: str, card_id: str) -> Card:
        card = self._questions.find_card(realm, card_id)
        if card is None:
            raise HumanError("UNKNOWN", f"No card {card_id!r} is known here. `steersman answer` lists what waits.")
        return card

    def _check_open(self, card: Card) -> None:
        if card.state == "settled":
            raise HumanError("ELSEWHERE", f"Card {card.id} was answered elsewhere. That answer stands.")

    def _agent(self, realm: str, agent_id: str) -> Agent:
        agent = self._registry.get(realm, agent_id)
        if agent is None:
            raise HumanError("UNKNOWN", f"No agent {agent_id!r} is known. `steersman agents` lists those there are.")
        return agent

    async def _answer_late(self, card: Card, answers: tuple[Answer, ...]) -> None:
        agent = _agent_of(card)
        text = _late_text(card, answers)
        receipt = self._tell(agent, text, "step")
        self._questions.let_go(card)
        await self._journal.append(QuestionAnsweredLate(agent.realm, agent.id, card.id, answers, receipt.message_id))

    def _tell(self, agent: Agent, text: str, mode: SteerMode) -> Receipt:
        try:
            return self._steering.tell(agent, text, mode, "human")
        except SubagentError as error:
            why = {
                "UNKNOWN_SUBAGENT": "its host reads no messages",
                "SUBAGENT_FINISHED": "it has finished its one task",
                "SUBAGENT_CLOSING": "its host is taking it down",
            }[error.code]
            raise HumanError("UNREACHABLE", f"Agent {agent.id} cannot be told: {why}. Nothing was sent.") from None
        except ToolError as error:
            raise HumanError("UNREACHABLE", f"Agent {agent.id} cannot be told: {error.reason}") from None


def _show(card: Card) -> Waiting | None:
    asker = card.request.agent
    if asker is None:
        return None
    hosts = sorted(binding.label for binding in asker.bindings if binding.label)
    plan = card.request.intent.plan if card.request.intent is not None else None
    return Waiting(
        card.id,
        asker.agent,
        ", ".join(hosts),
        card.shown_since,
        card.state == "orphaned",
        card.request.questions,
        plan,
    )


def _agent_of(card: Card) -> Agent:
    assert card.request.agent is not None
    return card.request.agent.agent


def _late_text(card: Card, answers: Sequence[Answer]) -> str:
    said = {answer.id: answer for answer in answers}
    pairs = [{"question": question.question, **_shape_answer(said[question.id])} for question in card.request.questions]
    asked_at = datetime.fromtimestamp(card.shown_since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    template: str = load("host")["notices"]["late"]
    before, after = template.split("{answers}")
    return before.format(asked_at=asked_at) + compact(pairs) + after


def _shape_answer(answer: Answer) -> Mapping[str, object]:
    if answer.skipped:
        return {"selected": [], "skipped": True}
    return {"selected": list(answer.selected), **({"custom": answer.custom} if answer.custom is not None else {})}
