"""The question service: the one way from an agent to its human, with every check in it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import anyio

from steersman.clock import Clock
from steersman.errors import Code, SteersmanError, UserQuestionError
from steersman.journal import (
    CardRestored,
    Event,
    Journal,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    QuestionOrphaned,
    QuestionSuspended,
    Restored,
)
from steersman.questions.answers import check_answers
from steersman.questions.cards import CardStore, Entry, answer_digest
from steersman.questions.requests import (
    Answered,
    AskRequest,
    Card,
    Provider,
    ProviderUnavailableError,
    Reply,
    Suspended,
)
from steersman.questions.types import Answer, Via
from steersman.registry import Activation, AgentRegistry

T = TypeVar("T")


class UserQuestions:
    """Puts questions of live, unowned agents before the human.

    Args:
        registry: who is live. Without one nobody is.
        clock: for deadlines.
        journal: every question and its end is recorded there.
        providers: who can reach the human; the host's settings say in which order they are tried.
    """

    def __init__(
        self,
        registry: AgentRegistry | None,
        *,
        clock: Clock,
        journal: Journal,
        providers: Sequence[Provider] = (),
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._journal = journal
        self._providers = list(providers)
        self._cards = CardStore(clock)
        self._closing = False
        self._changed = anyio.Event()
        self._deciders: list[Callable[[AskRequest, Answered], Sequence[Event]]] = []
        journal.fold(self._apply)
        if registry is not None:
            registry.on_end(self._agent_ended)

    def register(self, provider: Provider) -> None:
        """Add a provider behind those there are."""
        self._providers.append(provider)

    def on_answer(self, decide: Callable[[AskRequest, Answered], Sequence[Event]]) -> None:
        """Have `decide` name the facts that follow from an answer: they happen together with it, and once."""
        self._deciders.append(decide)

    def open_cards(self, realm: str) -> list[Card]:
        """What waits for the human in a realm: by agent, oldest first."""
        waiting = (entry.card for entry in self._cards.open_cards())
        return [card for card in waiting if card.request.agent is not None and card.request.agent.realm == realm]

    def newest_open(self) -> float | None:
        """When the newest card that a live agent waits for, in any realm, was shown: seconds since the epoch."""
        cards = (entry.card for entry in self._cards.open_cards())
        return max((card.shown_since for card in cards if card.state == "open" and self._waits(card)), default=None)

    def _waits(self, card: Card) -> bool:
        asker = card.request.agent
        return asker is None or (self._registry is not None and self._registry.is_live(asker))

    def changed(self) -> anyio.Event:
        """What is set when a card comes, goes or changes next."""
        return self._changed

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
                await self._journal.append()
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

    async def recall(self, request: AskRequest) -> Answered | None:
        """The outcome that this very call had before, if its reply was lost and it comes again.

        Raises what that outcome was, and as `ask` for a call that is no repetition.
        """
        entry = self._cards.find(request)
        if entry is None or entry.outcome is None:
            return None
        await self._journal.append()
        return _replay(entry.outcome)

    def withdraw_all(self) -> None:
        """Withdraw every open question and refuse new ones, because the server is going away."""
        self._closing = True
        for entry in self._cards.open_cards():
            if entry.leader is not None:
                entry.scope.cancel()

    # --- after a restart ---------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Take up what an earlier server left: cards that hosts show extend their askers' leases again; what that
        server had open itself is orphaned, since nobody waits for it any more."""
        for entry in self._cards.open_cards():
            if entry.suspended_by is not None:
                self._cards.await_host(entry, entry.request.agent)
                if self._registry is not None and entry.request.agent is not None:
                    self._registry.renew(entry.request.agent)
            elif entry.card.state == "open":
                self._journal.append(QuestionOrphaned(*_names(entry)))

    def _apply(self, event: Event | Restored) -> None:
        match event:
            case CardRestored():
                self._restore(event)
            case QuestionOrphaned():
                entry = self._cards.by_card(event.realm, event.card_id)
                if entry is not None:
                    entry.card.state = "orphaned"
            case _:
                pass

    def _restore(self, stored: CardRestored) -> None:
        agent = self._registry.stand_in(stored.realm, stored.agent_id) if self._registry is not None else None
        request = AskRequest(
            stored.questions, agent, call_digest=stored.call_digest, call_key=stored.call_key, intent=stored.intent
        )
        entry = self._cards.add(request, stored.card_id, stored.asked_at)
        entry.card.state = "orphaned" if stored.orphaned else "open"
        entry.answer_digest = stored.answer_digest
        for provider in self._providers:
            if provider.name == stored.suspended_by:
                entry.suspended_by = provider
        for hashed in stored.handles:
            self._cards.add_handle(entry, hashed)
        if stored.answers is not None and stored.via is not None:
            self._cards.settle(entry, Answered(stored.answers, stored.via, stored.card_id))
        elif stored.code is not None:
            self._cards.settle(entry, UserQuestionError(cast("Code", stored.code), reason=stored.reason))

    # --- the human, at a page or a terminal of ours ------------------------------------------------------------------

    def find_card(self, realm: str, card_id: str) -> Card | None:
        """A card that is open, settled or withdrawn, as far as it is remembered."""
        entry = self._cards.by_card(realm, card_id)
        return entry.card if entry is not None else None

    def check(self, card: Card, reply: Reply) -> tuple[Answer, ...]:
        """Read an answer to a card. Raises `ANSWER_INVALID`; the card stays open then."""
        return check_answers(card.request.questions, reply)

    async def settle(self, card: Card, reply: tuple[Answer, ...] | UserQuestionError) -> bool:
        """Take the human's answer to a card that a live agent waits for, or a refusal of one that is open.

        Returns:
            Whether it was the first: what came before it stands.
        """
        entry = self._cards.by_card(*_place(card.request, card.id))
        if entry is None or entry.card.state != "open":
            return False
        # A card that its host shows is its agent's: the agent may have been entered again since.
        asker = entry.request.agent.agent.current if entry.request.agent is not None else None
        if isinstance(reply, UserQuestionError):
            # Also if the agent is not live: whoever comes back for the answer finds this.
            self._refuse(entry, reply)
        elif asker is None or asker.owner_id is not None:
            return False
        else:
            self._accept(entry, replace(entry.request, agent=asker), reply, "console")
        if asker is not None and self._registry is not None:
            self._registry.renew(asker)
        if entry.leader is not None:
            entry.scope.cancel()
        await self._journal.append()
        return True

    def let_go(self, card: Card) -> None:
        """Forget a card that nobody waits for: its answer has gone another way, or it was dismissed."""
        entry = self._cards.by_card(*_place(card.request, card.id))
        if entry is not None:
            self._cards.answer_late(entry)
            self._ring()

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
        entry.card.state = "open"
        entry.scope = anyio.CancelScope()
        outcome: Answered | Suspended | SteersmanError | None = None
        self._ring()
        try:
            with entry.scope:
                outcome = await self._carry(request, entry, choice)
            if outcome is None:
                # Answered at a page or a terminal, or withdrawn.
                outcome = entry.outcome or UserQuestionError("ASK_ABORTED")
                await self._journal.append()
            if isinstance(outcome, SteersmanError):
                raise outcome
        except BaseException as error:
            await self._close(entry, error)
            raise
        finally:
            entry.leader = None
            entry.wake()
            self._ring()
        return outcome

    async def _carry(self, request: AskRequest, entry: Entry, choice: Provider | None) -> Answered | Suspended:
        timeout = request.host.ask_timeout
        deadline = None if timeout is None else entry.card.asked_at + timeout
        if choice is None:
            if deadline is not None and self._clock.now() >= deadline:
                raise UserQuestionError("ASK_TIMED_OUT")
            provider, reply = self._read_resumed(request, entry)
        else:
            if entry.suspended_by is None:
                await self._journal.append(
                    QuestionAsked(
                        *_names(entry), request.questions, request.intent, request.call_digest, request.call_key
                    )
                )
            provider, reply = await self._before(deadline, lambda: self._put(request, entry, choice))
        if isinstance(reply, Suspended):
            self._cards.suspend(entry, provider, request.agent)
            await self._journal.append(QuestionSuspended(*_names(entry), provider.name, entry.handles[-1]))
            return reply
        answers = check_answers(request.questions, reply)
        # The answer has come: from here on no cancellation takes it back.
        answered = self._accept(entry, request, answers, provider.name)
        with anyio.CancelScope(shield=True):
            await self._journal.append()
        return answered

    def _accept(self, entry: Entry, request: AskRequest, answers: tuple[Answer, ...], via: Via) -> Answered:
        answered = Answered(answers, via, entry.card.id)
        follows = [fact for decide in self._deciders for fact in decide(request, answered)]
        self._journal.append(QuestionAnswered(*_names(entry), answers, via, entry.answer_digest), *follows)
        self._cards.settle(entry, answered)
        self._ring()
        return answered

    def _refuse(self, entry: Entry, error: SteersmanError) -> None:
        self._journal.append(QuestionClosed(*_names(entry), error.code, error.reason, entry.answer_digest))
        self._cards.settle(entry, error)
        self._ring()

    def _read_resumed(self, request: AskRequest, entry: Entry) -> tuple[Provider, Reply]:
        assert request.resumption is not None
        assert entry.suspended_by is not None
        # Taken, whatever it turns out to be: a second, different answer is refused.
        entry.answer_digest = answer_digest(request.resumption.answer)
        return entry.suspended_by, entry.suspended_by.resume(entry.card, request.resumption.answer)

    def _choose(self, request: AskRequest, after: Provider | None = None, why: Sequence[str] = ()) -> Provider:
        """The first provider, behind `after`, that can reach the human."""
        found = list(why)
        ordered = [each for name in request.host.providers for each in self._providers if each.name == name]
        start = 0 if after is None else ordered.index(after) + 1
        for provider in ordered[start:]:
            obstacle = provider.obstacle(request)
            if obstacle is None:
                return provider
            found.append(obstacle)
        raise UserQuestionError("NO_PROVIDER", reason=", and ".join(found or ["no way to a human is configured"]) + ".")

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
        if entry.outcome is not None:
            return
        code = error.code if isinstance(error, SteersmanError) else "ASK_ABORTED"
        if isinstance(error, SteersmanError) and code not in ("ASK_ABORTED", "NO_PROVIDER"):
            self._refuse(entry, error)
        elif entry.suspended_by is None:
            self._journal.append(QuestionClosed(*_names(entry), code))
            self._cards.drop(entry)
        else:
            # The host still shows it, and may come again with the answer.
            return
        with anyio.CancelScope(shield=True):
            await self._journal.append()

    def _ring(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _agent_ended(self, activation: Activation) -> None:
        for entry in self._cards.open_of(activation.realm, activation.id):
            if entry.leader is not None:
                if entry.leader.agent is activation:
                    entry.scope.cancel()
            elif activation.agent.is_over and entry.card.state == "open":
                # Its host shows it, and nobody can come back with the answer.
                self._journal.append(QuestionClosed(*_names(entry), "ASK_ABORTED"))
                self._cards.drop(entry)
                self._ring()
            entry.wake()


def _place(request: AskRequest, card_id: str) -> tuple[str, str]:
    return ("" if request.agent is None else request.agent.realm), card_id


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
