"""`exit_plan_mode`: schema names to service names, and back."""

from __future__ import annotations

from steersman.contract.arguments import PlanArguments
from steersman.questions.requests import Suspended
from steersman.services import Services
from steersman.tools.call import Structured, ToolCall


async def exit_plan_mode(services: Services, arguments: PlanArguments, call: ToolCall) -> Structured | Suspended:
    review = await services.reviews.review(arguments.plan, call.ask_request())
    if isinstance(review, Suspended):
        return review
    return {
        "approved": True,
        "plan_sha256": review.plan_sha256,
        "review_id": review.review_id,
        "via": review.via,
    }
