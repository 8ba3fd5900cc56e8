"""The answer check: does what came back answer what was asked?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, cast

from steersman.errors import UserQuestionError
from steersman.questions.types import Answer, Question


def has_words(text: str | None) -> bool:
    """Whether a free answer says anything: the one definition of an empty answer."""
    return text is not None and bool(text.strip())


def check_answers(questions: Sequence[Question], reply: object) -> tuple[Answer, ...]:
    """Return the answers in the order asked, each question answered once and only with what was offered.

    Silence is no answer: a question is answered by a label, by words, or by being skipped in so many words. Words
    replace the choice of a single-choice question and add to that of a multiple-choice one.

    Raises:
        UserQuestionError: `ANSWER_INVALID`, naming what does not fit.
    """
    if not isinstance(reply, list | tuple):
        _invalid("nothing that holds answers")
    by_id: dict[str, Answer] = {}
    known = {question.id for question in questions}
    for answer in cast("Sequence[object]", reply):
        if not isinstance(answer, Answer):
            _invalid("something that is no answer")
        if answer.id not in known:
            _invalid("an answer to a question that was not asked")
        if answer.id in by_id:
            _invalid(f"two answers to question {_number(questions, answer.id)}")
        by_id[answer.id] = answer
    return tuple(_check_one(number, question, by_id) for number, question in enumerate(questions, start=1))


def _check_one(number: int, question: Question, by_id: dict[str, Answer]) -> Answer:
    answer = by_id.get(question.id)
    if answer is None:
        _invalid(f"no answer to question {number}")
    said = has_words(answer.custom)
    if answer.skipped:
        if answer.selected or said:
            _invalid(f"question {number} both skipped and answered")
        return Answer(question.id, skipped=True)
    offered = [option.label for option in question.options]
    if any(label not in offered for label in answer.selected):
        _invalid(f"a choice that question {number} did not offer")
    if len(set(answer.selected)) != len(answer.selected):
        _invalid(f"one choice twice for question {number}")
    if len(answer.selected) > 1 and not question.multi_select:
        _invalid(f"{len(answer.selected)} choices for question {number}, which takes one")
    if not answer.selected and not said:
        _invalid(f"an empty answer to question {number}")
    selected = () if said and not question.multi_select else tuple(sorted(answer.selected, key=offered.index))
    return Answer(question.id, selected, answer.custom if said else None)


def _number(questions: Sequence[Question], question_id: str) -> int:
    return 1 + next(at for at, question in enumerate(questions) if question.id == question_id)


def _invalid(found: str) -> NoReturn:
    raise UserQuestionError("ANSWER_INVALID", reason=f"Found was {found}.")
