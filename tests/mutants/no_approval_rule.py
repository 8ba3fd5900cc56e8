"""Without the approval rule: an answer is an approval."""

from steersman.plans import Approved, PlanReviews
from steersman.questions.requests import Answered


def decide(self: PlanReviews, plan: str, answered: Answered) -> Approved:
    return Approved("0" * 64, answered.card_id, answered.via)


PlanReviews._decide = decide  # pyright: ignore[reportPrivateUsage]
