"""The first three stories: questions and plans. The agents' moves are scripted; what they are told is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_types import TextContent

from steersman.demo.stage import Stage
from steersman.text import visible
from steersman_client import Agent

_QUESTIONS: Final[list[dict[str, Any]]] = [
    {
        "id": "store",
        "header": "Store",
        "question": "Where are the sessions to be kept?",
        "options": [
            {"label": "PostgreSQL", "description": "one more table in the database that is there already"},
            {"label": "Redis", "description": "faster, and one more service to run"},
        ],
    },
    {
        "id": "checks",
        "header": "Checks",
        "question": "Which checks run before the switch?",
        "options": [{"label": "Load test"}, {"label": "Security review"}, {"label": "Dry run on a copy"}],
        "multi_select": True,
    },
    {"id": "limits", "header": "Limits", "question": "What must not happen while this is done?"},
]
_OPEN_QUESTION: Final[dict[str, Any]] = {
    "id": "duplicates",
    "header": "Duplicates",
    "question": "Three users have two sessions under one key. Which session is kept?",
    "options": [{"label": "The newer one"}, {"label": "The older one"}, {"label": "Neither, they sign in again"}],
}
_FEEDBACK: Final = "Say how we get back if the switch goes wrong."


async def ask_the_human(stage: Stage, main: Agent) -> list[str]:
    """The main agent asks three questions at once; returns what the human decided, a line each."""
    stage.narration.heading("1. An agent asks the human")
    reply = await stage.call("main", main, "ask_user_question", {"questions": _QUESTIONS})
    if stage.check_answered(reply, _QUESTIONS):
        return [_decision(answer) for answer in reply.structured["answers"]]
    return []


async def have_a_plan_reviewed(stage: Stage, main: Agent, decisions: Sequence[str]) -> None:
    """The human turns plan mode on; the agent presents its plan until it is approved, or the human leaves it."""
    stage.narration.heading("2. A plan is reviewed")
    prompt = await stage.client.get_prompt("plan", meta={**main.meta})  # pyright: ignore[reportArgumentType]
    texts = [message.content.text for message in prompt.messages if isinstance(message.content, TextContent)]
    stage.narration.say("host", f"the human picks the prompt plan, which tells main: {' '.join(texts)}")
    planning = (await stage.status(main))["plan_mode"]
    stage.check(planning is True, "main is in plan mode now", planning)

    plan = "\n".join(["# Move the sessions", "", *(f"- {line}" for line in decisions), "- Switch on Monday at 6."])
    if stage.script is not None:
        stage.script.answer_next_in_words(_FEEDBACK)
    reviews = 1
    while (feedback := await _review(stage, main, plan)) is not None:
        quoted = "\n".join(f"> {line}" for line in feedback.splitlines()) or "> (no words)"
        plan += f"\n\n## After review {reviews}\n\n{quoted}\n\nThe old store stays for a week; one setting leads back."
        reviews += 1
        stage.narration.say("main", "revises the plan with that feedback quoted, and presents it again")
    if stage.script is not None:
        stage.check(reviews == 2, "it took two reviews, as the script had it", reviews)
    elif reviews == 1:
        stage.narration.say("host", "no revision was asked for, so this story ends with its first review")


async def _review(stage: Stage, main: Agent, plan: str) -> str | None:
    """Have the plan reviewed once; returns the feedback of a human who wants it revised."""
    reply = await stage.call("main", main, "exit_plan_mode", {"plan": plan})
    said = reply.exchange
    shown = said is not None and visible(plan, multiline=True) in said.message
    stage.check(shown, "the human was shown the whole plan", said)
    assert said is not None
    still_planning = (await stage.status(main))["plan_mode"]
    if said.action != "accept":
        stage.check_answered(reply, ())
        stage.check(still_planning is True, "plan mode stays on", still_planning)
        return None
    if said.chosen != ("Approve",) or said.words:
        stage.check(reply.code == "KEEP_PLANNING", "a plan that is not approved is KEEP_PLANNING", reply.structured)
        feedback: str = reply.error.get("feedback", "")
        stage.check(feedback == "".join(said.words), "the feedback is what the human wrote, unchanged", feedback)
        stage.check(still_planning is True, "plan mode stays on", still_planning)
        return feedback
    digest = hashlib.sha256(plan.encode()).hexdigest()
    stage.check(reply.structured.get("approved") is True, "the plan is approved", reply.structured)
    stage.check(
        reply.structured.get("plan_sha256") == digest,
        f"the approval names the SHA-256 of the plan that main sent, {digest}",
        reply.structured,
    )
    stage.check(still_planning is False, "plan mode is off", still_planning)
    return None


async def refuse_a_subagent(stage: Stage, main: Agent) -> None:
    """A subagent asks and is refused; its question reaches the human through its owner."""
    stage.narration.heading("3. A subagent asks, and its owner asks for it")
    subagent = await stage.host.enter(label="subagent", owner=main, mode="one-shot")
    stage.narration.say("host", f"enters the subagent as {subagent.id}, owner: {subagent.parent_session}")
    shown = stage.dialog.shown
    reply = await stage.call("subagent", subagent, "ask_user_question", {"questions": [_OPEN_QUESTION]})
    stage.check(reply.code == "DELEGATED_CALLER", "the subagent is refused with DELEGATED_CALLER", reply.structured)
    stage.check(stage.dialog.shown == shown, "the human was shown nothing", stage.dialog.exchanges[-1:])
    waiting = (await stage.status(subagent))["open_questions"]
    stage.check(waiting == 0, "no question of the subagent waits", waiting)

    final = json.dumps({"done": "looked through the sessions", "refused": reply.code, "open": [_OPEN_QUESTION]})
    await subagent.exit("completed", final=final)
    stage.narration.say("subagent", f"ends with the final result {final}")
    ended = (await stage.status(subagent))["status"]
    stage.check(ended == "finished", "the subagent has finished", ended)

    # The host hands the final result to the owner, as hosts do; from here on the owner knows nothing else.
    handed_over: Mapping[str, Any] = json.loads(final)
    stage.narration.say("main", "reads that final result, and goes on: it asks what is open there")
    reply = await stage.call("main", main, "ask_user_question", {"questions": handed_over["open"]})
    answered = stage.check_answered(reply, handed_over["open"])
    shown_now = reply.exchange is not None and _OPEN_QUESTION["question"] in reply.exchange.message
    stage.check(shown_now, "the human was shown the subagent's very question", reply.exchange)
    if answered:
        stage.narration.say("main", f"carries on: {_decision(reply.structured['answers'][0])}")


def _decision(answer: Mapping[str, Any]) -> str:
    said = [*answer["selected"], *([answer["custom"]] if "custom" in answer else [])]
    return f"{answer['id']}: {', '.join(said) or 'left open'}"
