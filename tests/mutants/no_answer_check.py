"""Without the answer check: whatever a provider brings back is an answer."""

from collections.abc import Sequence
from typing import Any

from steersman.questions import service
from steersman.questions.types import Question


def check_answers(questions: Sequence[Question], reply: Any) -> Any:
    return tuple(reply or ())


service.check_answers = check_answers
