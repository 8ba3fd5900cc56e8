"""Plan mode, and the review that ends it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from steersman.errors import PlanModeError, UserQuestionError
from steersman.journal import (
    AgentEnded,
    AgentEntered,
    AgentExited,
    Event,
    Journal,
    PlanApproved,
    PlanModeQueued,
    PlanModeRestored,
    PlanModeSet,
    Restored,
)
from steersman.mailboxes import Mailboxes
from steersman.questions.requests import Answered, AskRequest, Suspended
from steersman.questions.service import UserQuestions
from steersman.questions.types import Option, PlanReview, Question, Via
from steersman.registry import Activation, Agent

APPROVE: Final = "Approve"
KEEP_PLANNING: Final = "Keep planning"
_QUESTION_ID: Final = "plan"

PlanModeChange = Literal["committed", "queued", "cancelled", "noop"]


@dataclass(frozen=True)
class Approved:
    """An approved review of exactly one plan."""

    plan_sha256: str
    """Of the plan's UTF-8 bytes as they came, in hexadecimal."""
    review_id: str
    via: Via


@dataclass
class _State:
    active: bool = False
    queued: bool | None = None
    """What it becomes at the next step boundary, if a switch waits for that."""


class PlanMode:
    """Which agents are in plan mode. The last change wins.

    Hosts without a plan mode have the setting `always`: every root of theirs counts as in it, also after an approval.
    """

    def __init__(self, mailboxes: Mailboxes, *, journal: Journal) -> None:
        self._mailboxes = mailboxes
        self._journal = journal
        self._states: defaultdict[tuple[str, str], _State] = defaultdict(_State)
        journal.fold(self._apply)

    def active(self, agent: Activation) -> bool:
        always = agent.owner_id is None and any(binding.host.plan_mode == "always" for binding in agent.bindings)
        return always or self.set_for(agent.agent)

    def set_for(self, agent: Agent) -> bool:
        """Whether it is on for an agent, live or not, by its own switch."""
        return self._states[agent.realm, agent.id].active

    async def set(self, agent: Agent, active: bool) -> PlanModeChange:
        """Turn plan mode on or off, while a turn runs at its next step boundary.

        Returns:
            `committed`; `queued` for the boundary; `cancelled` if a switch that waited for it is taken back;
            `noop` if it is so, or will be, already.
        """
        change = self._change(agent, active)
        await self._journal.append()
        return change

    def leaving(self, agent: Agent) -> Sequence[PlanModeSet]:
        """What turns plan mode off at once, whatever switch waits."""
        on = self._states[agent.realm, agent.id] != _State()
        return (PlanModeSet(agent.realm, agent.id, False),) if on else ()

    def pass_boundary(self, agent: Agent) -> None:
        """Have a switch that waits take effect: a step of the agent is over, or its turn begins."""
        queued = self._states[agent.realm, agent.id].queued
        if queued is not None:
            self._journal.append(PlanModeSet(agent.realm, agent.id, queued))

    def _change(self, agent: Agent, active: bool) -> PlanModeChange:
        state = self._states[agent.realm, agent.id]
        if active == (state.active if state.queued is None else state.queued):
            return "noop"
        if agent.current is None or not self._mailboxes.of(agent).open:
            self._journal.append(PlanModeSet(agent.realm, agent.id, active))
            return "committed"
        waits = None if active == state.active else active
        self._journal.append(PlanModeQueued(agent.realm, agent.id, waits))
        return "cancelled" if waits is None else "queued"

    def _apply(self, event: Event | Restored) -> None:
        match event:
            case PlanModeRestored():
                self._states[event.realm, event.agent_id] = _State(event.active, event.queued)
            case PlanModeSet():
                self._states[event.realm, event.agent_id] = _State(event.active)
            case PlanModeQueued():
                self._states[event.realm, event.agent_id].queued = event.active
            case AgentEntered() | AgentExited() | AgentEnded():
                # The turn whose boundary it waited for is gone.
                state = self._states[event.realm, event.agent_id]
                self._states[event.realm, event.agent_id] = _State(
                    state.active if state.queued is None else state.queued
                )
            case _:
                pass


class PlanReviews:
    """Has plans reviewed by the human. An approval, and nothing else, ends plan mode."""

    def __init__(self, questions: UserQuestions, mode: PlanMode, *, journal: Journal) -> None:
        self._questions = questions
        self._mode = mode
        self._journal = journal
        questions.on_answer(self._follow)

    async def review(self, plan: str, request: AskRequest) -> Approved | Suspended:
        """Put `plan` before the human and wait for the decision.

        The checks come in this order: caller, plan mode, plan; then those of the question itself. A call whose review
        was decided before, and whose reply was lost, gets the same decision again.

        Args:
            plan: the whole plan, Markdown.
            request: the call that brought it; what is asked is filled in here.

        Raises:
            PlanModeError: `NOT_IN_PLAN_MODE`, `INVALID_PLAN`, or `KEEP_PLANNING` with the human's words.
            UserQuestionError: the question was refused, or ended without a decision. Plan mode stays on.
        """
        agent = request.agent
        assert agent is not None
        self._admit(agent)
        request = replace(request, questions=(_QUESTION,), intent=PlanReview(plan, APPROVE))
        known = await self._questions.recall(request)
        if known is not None:
            return self._decide(plan, known)
        # A call that comes back with an answer was let in when it asked.
        if request.resumption is None and not self._mode.active(agent):
            raise PlanModeError("NOT_IN_PLAN_MODE")
        _check_plan(plan)
        answered = await self._questions.ask(request)
        if isinstance(answered, Suspended):
            return answered
        # Who was replaced while the answer came decides nothing for who replaced it.
        self._admit(agent)
        return self._decide(plan, answered)

    def _follow(self, request: AskRequest, answered: Answered) -> Sequence[Event]:
        """An approval ends plan mode together with the answer that it is, also if no call comes to fetch it."""
        agent, review = request.agent, request.intent
        if review is None or agent is None or agent.ended or not _approves(answered):
            return ()
        sha256 = hashlib.sha256(review.plan.encode()).hexdigest()
        return PlanApproved(agent.realm, agent.id, answered.card_id, sha256), *self._mode.leaving(agent.agent)

    def _admit(self, agent: Activation) -> None:
        try:
            self._questions.admit(agent)
        except UserQuestionError as refusal:
            if refusal.code == "CALLER_NOT_LIVE":
                raise PlanModeError("CALLER_NOT_LIVE") from None
            raise

    def _decide(self, plan: str, answered: Answered) -> Approved:
        """Approved is one thing only: exactly one selected label, the approving one, and no word beside it."""
        if not _approves(answered):
            raise PlanModeError("KEEP_PLANNING", feedback=answered.answers[0].custom or "")
        return Approved(hashlib.sha256(plan.encode()).hexdigest(), answered.card_id, answered.via)


_QUESTION = Question(
    id=_QUESTION_ID,
    question="Is this plan approved?",
    header="Plan",
    options=(
        Option(APPROVE, "The agent leaves plan mode and carries the plan out."),
        Option(KEEP_PLANNING, "Plan mode stays on."),
    ),
)


def _approves(answered: Answered) -> bool:
    answer = answered.answers[0]
    return answer.selected == (APPROVE,) and answer.custom is None and not answer.skipped


def _check_plan(plan: str) -> None:
    lines = plan.splitlines() or [""]
    first = lines[0]
    marks = len(first) - len(first.lstrip("#"))
    title = first[marks:]
    if not 1 <= marks <= 6 or not title[:1].isspace() or not title.strip().strip("#").strip():
        raise PlanModeError("INVALID_PLAN", reason="its first line is not a # heading with a title.")
    if not any(line.strip() for line in lines[1:]):
        raise PlanModeError("INVALID_PLAN", reason="nothing stands under its heading.")
