"""`steer_subagent`: schema names to service names, and back."""

from __future__ import annotations

from steersman.contract.arguments import SteerArguments
from steersman.messages import CallId
from steersman.services import Services
from steersman.tools.call import Structured, ToolCall


async def steer_subagent(services: Services, arguments: SteerArguments, call: ToolCall) -> Structured:
    call_id = CallId(call.key, call.digest) if call.key is not None else None
    receipt = await services.steering.steer(
        call.caller, arguments.subagent_id, arguments.message, arguments.mode, call=call_id
    )
    return receipt.as_json()
