"""What the human's own tools ask of the server, over its socket: plain JSON values in and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from steersman.agent_tree import agent_tree
from steersman.contract.arguments import check_message
from steersman.errors import ToolError, UserQuestionError
from steersman.human import HumanError, Waiting
from steersman.questions.types import Answer
from steersman.services import Services

MAX_REASON: Final = 16 * 1024

P = TypeVar("P", bound="HumanParams")


class HumanParams(BaseModel):
    """Parameters as the wire spells them."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NoParams(HumanParams):
    pass


class GivenAnswer(HumanParams):
    """One answer: labels as they were asked, words, or neither because the question is skipped."""

    id: str
    selected: list[str] = Field(default_factory=list[str])
    custom: str | None = None
    skipped: bool = False


class AnswerParams(HumanParams):
    card_id: str
    answers: list[GivenAnswer]


class CardParams(HumanParams):
    card_id: str


class RefuseParams(HumanParams):
    card_id: str
    how: Literal["dismiss", "decline"]
    reason: str | None = Field(None, max_length=MAX_REASON)


class SendParams(HumanParams):
    agent_id: str
    text: str
    at: Literal["step", "turn"] = "step"


class AgentParams(HumanParams):
    agent_id: str


class PlanParams(HumanParams):
    agent_id: str
    active: bool


async def waiting(services: Services, realm: str, params: NoParams) -> Mapping[str, Any]:
    del params
    return {"waiting": [show_card(card) for card in services.human.waiting(realm)]}


async def card(services: Services, realm: str, params: CardParams) -> Mapping[str, Any]:
    state, shown = services.human.state(realm, params.card_id)
    return {"state": state, **(show_card(shown) if shown is not None else {})}


async def answer(services: Services, realm: str, params: AnswerParams) -> Mapping[str, Any]:
    answers = [Answer(each.id, tuple(each.selected), each.custom, each.skipped) for each in params.answers]
    return {"told": await services.human.answer(realm, params.card_id, answers)}


async def refuse(services: Services, realm: str, params: RefuseParams) -> Mapping[str, Any]:
    code = "ASK_CANCELLED" if params.how == "dismiss" else "ASK_DECLINED"
    error = UserQuestionError(code, reason=params.reason or None)
    return {"told": await services.human.refuse(realm, params.card_id, error)}


async def agents(services: Services, realm: str, params: NoParams) -> Mapping[str, Any]:
    del params
    return {"agents": agent_tree(services, realm)}


async def send(services: Services, realm: str, params: SendParams) -> Mapping[str, Any]:
    try:
        check_message(params.text)
    except ToolError as error:
        raise HumanError("INVALID", error.reason or "The message is not valid.") from None
    receipt = await services.human.send(realm, params.agent_id, params.text, params.at)
    return receipt.as_json()


async def interrupt(services: Services, realm: str, params: AgentParams) -> Mapping[str, Any]:
    return {"turn": await services.human.interrupt(realm, params.agent_id)}


async def set_plan_mode(services: Services, realm: str, params: PlanParams) -> Mapping[str, Any]:
    return {"result": await services.human.set_plan_mode(realm, params.agent_id, params.active)}


def show_card(card: Waiting) -> Mapping[str, Any]:
    """A card as JSON: `{card_id, agent_id, agent, host, asked_at, orphaned, questions, plan?}`; a review has a plan."""
    asked_at = datetime.fromtimestamp(card.asked_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    questions: Sequence[Mapping[str, Any]] = [
        {
            "id": question.id,
            "question": question.question,
            "header": question.header,
            "options": [{"label": option.label, "description": option.description} for option in question.options],
            "multi_select": question.multi_select,
        }
        for question in card.questions
    ]
    return {
        "card_id": card.card_id,
        "agent_id": card.agent.id,
        "agent": card.agent.label,
        "host": card.host,
        "asked_at": asked_at,
        "orphaned": card.orphaned,
        "questions": questions,
        **({"plan": card.plan} if card.plan is not None else {}),
    }


Serve = Callable[[Services, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


def _method(model: type[P], run: Callable[[Services, str, P], Awaitable[Mapping[str, Any]]]) -> Serve:
    async def serve(services: Services, realm: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return await run(services, realm, model.model_validate(raw))

    return serve


HUMAN_METHODS: Final[Mapping[str, Serve]] = {
    "waiting": _method(NoParams, waiting),
    "card": _method(CardParams, card),
    "answer": _method(AnswerParams, answer),
    "refuse": _method(RefuseParams, refuse),
    "agents": _method(NoParams, agents),
    "send": _method(SendParams, send),
    "interrupt": _method(AgentParams, interrupt),
    "plan": _method(PlanParams, set_plan_mode),
}
"""Each by name. It raises `pydantic.ValidationError` for parameters of a wrong shape, and `HumanError`."""
