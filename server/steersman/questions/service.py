"""The question service: the one way from an agent to its human, with every check in it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from steersman.clock import Clock
from steersman.errors import SteersmanError, UserQuestionError
from steersman.journal import Journal, QuestionAnswered, QuestionAsked, QuestionClosed
from steersman.questions.answers import check_answers
from steersman.questions.cards import CardStore, Entry, answer_digest
from steersman.questions.types import (
    Answered,
    AskRequest,
    Card,
    Provider,
    ProviderUnavailableError,
    Reply,
    Suspended,
)
from steersman.registry import Activation, AgentRegistry

T = TypeVar("T")


class UserQuestions:
    """Puts questions of live, unowned agents before the human.

    Args:
        registry: who is live. Without one nobody is.
        clock: for deadlines.
        journal: every question and its end is recorded there.
        providers: who can reach the human, in the order they are tried.
        timeout: seconds after which an unanswered question is withdrawn; none, the default, waits for ever.
    """

    def __init__(
        self,
        registry: AgentRegistry | None,
        *,
        clock: Clock,
        journal: Journal,
        providers: Sequence[Provider] = (),
        timeout: float | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._journal = journal
        self._providers = list(providers)
        self._timeout = timeout
        self._cards = CardStore(clock)
        self._closing = False
        if registry is not None:
            registry.on_end(self._agent_ended)

    def register(self, provider: Provider) -> None:
        """Add a provider behind those there are."""
        self._providers.append(provider)

    def open_cards(self, realm: str) -> list[Card]:
        """What waits for the human in a realm: by agent, oldest first."""
        waiting = (entry.card for entry in self._cards.open_cards())
        return [card for card in waiting if card.request.agent is not None and card.request.agent.realm == realm]

    def count_open(self, realm: str, agent_id: str) -> int:
        """How many cards of one agent wait for the human."""
        return len(self._cards.open_of(realm, agent_id))

    # --- the checks --------------------------------------------------------------------------------------------------

    def admit(self, agent: Activation) -> None:
        """Let only a live agent through that no other agent owns.

        Raises:
            UserQuestionError: `CALLER_NOT_LIVE`, or `DELEGATED_CALLER` for a live agent that another one owns, even if
                that one has exited.
        """
        if self._registry is None or not self._registry.is_live(agent):
            raise UserQuestionError("CALLER_NOT_LIVE")
        if agent.owner_id is not None:
            raise UserQuestionError("DELEGATED_CALLER")

    async def ask(self, request: AskRequest) -> Answered | Suspended:
        """Ask the human and wait for the answer, or have the host ask and call again.

        The checks come in this order: aborted, empty batch, caller, intent. A refused request reaches no provider and
        leaves no card and no record. The same call asked again (by its key, or with its handle) joins its own card, or
        gets the outcome that card had.

        Raises:
            UserQuestionError: every code of that family.
            ToolError: `INVALID_ARGUMENTS` for a call key that belongs to other arguments.
        """
        while True:
            # Anew after each wait for another call's card: the caller may have ended meanwhile, or the server be going.
            self._check(request)
            entry = self._cards.find(request)
            if entry is not None and entry.outcome is not None:
                return _replay(entry.outcome)
            if entry is None or entry.leader is None:
                return await self._lead(request, entry)
            await entry.changed.wait()

    def _check(self, request: AskRequest) -> None:
        if self._closing:
            raise UserQuestionError("ASK_ABORTED")
        if not request.questions:
            raise UserQuestionError("EMPTY_QUESTIONS")
        if request.agent is not None:
            self.admit(request.agent)
        _check_intent(request)

    def recall(self, request: AskRequest) -> Answered | None:
        """The outcome that this very call had before, if its reply was lost and it comes again.

        Raises what that outcome was, and as `ask` for a call that is no repetition.
        """
        entry = self._cards.find(request)
        return _replay(entry.outcome) if entry is not None and entry.outcome is not None else None

    def withdraw_all(self) -> None:
        """Withdraw every open question and refuse new ones, because the server is going away."""
        self._closing = True
        for entry in self._cards.open_cards():
            if entry.leader is not None:
                entry.scope.cancel()

    # --- one card ----------------------------------------------------------------------------------------------------

    async def _lead(self, request: AskRequest, entry: Entry | None) -> Answered | Suspended:
        """Carry a card, new or found again, to its provider. One call at a time does so; the others wait for it."""
        resumed = entry is not None and request.resumption is not None
        if entry is None:
            choice = self._choose(request)
            entry = self._cards.add(request)
        else:
            choice = None if resumed else self._choose(request)
        entry.leader = request
        entry.scope = anyio.CancelScope()
        outcome: Answered | Suspended | None = None
        try:
            with entry.scope:
                outcome = await self._carry(request, entry, choice)
            if outcome is None:
                raise UserQuestionError("ASK_ABORTED")
        except BaseException as error:
            await self._close(entry, error)
            raise
        finally:
            entry.leader = None
            entry.wake()
        return outcome

    async def _carry(self, request: AskRequest, entry: Entry, choice: Provider | None) -> Answered | Suspended:
        deadline = None if self._timeout is None else entry.card.asked_at + self._timeout
        if choice is None:
            if deadline is not None and self._clock.now() >= deadline:
                raise UserQuestionError("ASK_TIMED_OUT")
            provider, reply = self._read_resumed(request, entry)
        else:
            if entry.suspended_by is None:
                await self._journal.append(QuestionAsked(*_names(entry), request.questions))
            provider, reply = await self._before(deadline, lambda: self._put(request, entry, choice))
        if isinstance(reply, Suspended):
            self._cards.suspend(entry, provider, request.agent)
            return reply
        answers = check_answers(request.questions, reply)
        answered = Answered(answers, provider.name, entry.card.id)
        # The answer has come: from here on no cancellation takes it back.
        with anyio.CancelScope(shield=True):
            await self._journal.append(QuestionAnswered(*_names(entry), answers, provider.name))
        self._cards.settle(entry, answered)
        return answered

    def _read_resumed(self, request: AskRequest, entry: Entry) -> tuple[Provider, Reply]:
        assert request.resumption is not None
        assert entry.suspended_by is not None
        # Taken, whatever it turns out to be: a second, different answer is refused.
        entry.answer_digest = answer_digest(request.resumption.answer)
        return entry.suspended_by, entry.suspended_by.resume(entry.card, request.resumption.answer)

    def _choose(self, request: AskRequest, after: Provider | None = None, why: Sequence[str] = ()) -> Provider:
        """The first provider, behind `after`, that can reach the human."""
        found = list(why)
        start = 0 if after is None else self._providers.index(after) + 1
        for provider in self._providers[start:]:
            obstacle = provider.obstacle(request)
            if obstacle is None:
                return provider
            found.append(obstacle)
        raise UserQuestionError("NO_PROVIDER", reason=" ".join(found) or "no way to a human is configured.")

    async def _put(self, request: AskRequest, entry: Entry, provider: Provider) -> tuple[Provider, Reply | Suspended]:
        obstacles: list[str] = []
        card = Card(entry.card.id, request, entry.card.asked_at)
        while True:
            try:
                return provider, await provider.ask(card, lambda: self._cards.new_handle(entry))
            except ProviderUnavailableError as unavailable:
                obstacles.append(str(unavailable))
                provider = self._choose(request, provider, obstacles)

    async def _before(self, deadline: float | None, work: Callable[[], Awaitable[T]]) -> T:
        if deadline is None:
            return await work()
        result: list[T] = []
        failure: BaseException | None = None

        async with anyio.create_task_group() as group:

            async def expire() -> None:
                await self._clock.sleep_until(deadline)
                group.cancel_scope.cancel()

            group.start_soon(expire)
            try:
                result.append(await work())
            except Exception as error:  # noqa: BLE001 - carried out of the task group as it is
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if result:
            return result[0]
        raise UserQuestionError("ASK_TIMED_OUT")

    async def _close(self, entry: Entry, error: BaseException) -> None:
        """Record that a card ended without an answer, and keep what the human or its host made of it."""
        code = error.code if isinstance(error, SteersmanError) else "ASK_ABORTED"
        if isinstance(error, SteersmanError) and code not in ("ASK_ABORTED", "NO_PROVIDER"):
            self._cards.settle(entry, error)
        elif entry.suspended_by is None:
            self._cards.drop(entry)
        else:
            # The host still shows it, and may come again with the answer.
            return
        with anyio.CancelScope(shield=True):
            await self._journal.append(QuestionClosed(*_names(entry), code))

    def _agent_ended(self, activation: Activation) -> None:
        for entry in self._cards.open_of(activation.realm, activation.id):
            if entry.leader is not None and entry.leader.agent is activation:
                entry.scope.cancel()
            entry.wake()


def _names(entry: Entry) -> tuple[str, str, str]:
    agent = entry.request.agent
    return (agent.realm, agent.id, entry.card.id) if agent is not None else ("", "", entry.card.id)


def _replay(outcome: Answered | SteersmanError) -> Answered:
    if isinstance(outcome, SteersmanError):
        raise outcome.with_traceback(None)
    return Answered(outcome.answers, outcome.via, outcome.card_id, replayed=True)


def _check_intent(request: AskRequest) -> None:
    if request.intent is None:
        return
    labels = [option.label for question in request.questions for option in question.options]
    if request.intent.approve not in labels:
        raise UserQuestionError("BAD_INTENT", reason=f"its approve label {request.intent.approve!r} is not offered.")
    if not request.intent.plan.strip():
        raise UserQuestionError("BAD_INTENT", reason="it names no plan.")
