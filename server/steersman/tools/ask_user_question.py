"""`ask_user_question`: schema names to service names, and back."""

from __future__ import annotations

from dataclasses import replace

from steersman.contract.arguments import AskArguments
from steersman.questions.requests import Suspended
from steersman.questions.types import Answer, Option, Question
from steersman.services import Services
from steersman.tools.call import Structured, ToolCall


async def ask_user_question(services: Services, arguments: AskArguments, call: ToolCall) -> Structured | Suspended:
    questions = tuple(
        Question(
            id=question.id,
            question=question.question,
            header=question.header,
            options=tuple(Option(option.label, option.description) for option in question.options),
            multi_select=question.multi_select,
        )
        for question in arguments.questions
    )
    answered = await services.questions.ask(replace(call.ask_request(), questions=questions))
    if isinstance(answered, Suspended):
        return answered
    return {"answers": [_answer(answer) for answer in answered.answers], "via": answered.via}


def _answer(answer: Answer) -> dict[str, object]:
    shaped: dict[str, object] = {"id": answer.id, "selected": list(answer.selected)}
    if answer.custom is not None:
        shaped["custom"] = answer.custom
    if answer.skipped:
        shaped["skipped"] = True
    return shaped
