"""Where cards are found again: by the host's id of the call, and by the handle of a suspended one."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from steersman.canonical import digest
from steersman.clock import Clock
from steersman.credentials import new_secret, secret_hash
from steersman.errors import SteersmanError, ToolError, UserQuestionError
from steersman.questions.requests import Answered, AskRequest, Card, Provider, Resumption
from steersman.registry import Activation, Agent

KEPT_CARDS: Final = 1024
"""How many suspended and settled cards of one agent are remembered, the newest."""
KEPT_CHARACTERS: Final = 8 * 1024 * 1024
"""How much text the suspended cards of one agent may hold; beyond it the oldest are forgotten."""
KEPT_GONE: Final = 1024
"""How many withdrawn cards can still be answered late, the newest."""
KEPT_HANDLES: Final = 8
"""How many handles of one card are good, the newest: a call repeated under its id gets a new one each time."""


@dataclass(eq=False)
class Entry:
    """A card with what the service remembers of it."""

    card: Card
    outcome: Answered | SteersmanError | None = None
    answer_digest: str | None = None
    """The digest of the one answer that was taken for a suspended card."""
    suspended_by: Provider | None = None
    handles: list[str] = field(default_factory=list[str])
    key: str | None = None
    waiting: Agent | None = None
    """Whose lease the suspended card extends."""
    leader: AskRequest | None = None
    """The call that has the card before the human right now; others that ask the same wait for it."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The leader's: cancelling it withdraws the card."""
    changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def request(self) -> AskRequest:
        return self.card.request

    @property
    def characters(self) -> int:
        """How much text it holds."""
        plan = 0 if self.request.intent is None else len(self.request.intent.plan)
        return plan + sum(question.characters for question in self.request.questions)

    def wake(self) -> None:
        """Have the calls that wait for this card look again."""
        self.changed.set()
        self.changed = anyio.Event()


class CardStore:
    """The cards of all agents, open and remembered. In memory; nothing but hashes of handles."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_agent: dict[tuple[str, str], OrderedDict[str, Entry]] = {}
        self._by_key: dict[tuple[str, str, str], Entry] = {}
        self._by_handle: dict[str, Entry] = {}
        self._by_card: dict[tuple[str, str], Entry] = {}
        self._gone: OrderedDict[tuple[str, str], Entry] = OrderedDict()

    def by_card(self, realm: str, card_id: str) -> Entry | None:
        """The card of that id: open, remembered or withdrawn."""
        return self._by_card.get((realm, card_id)) or self._gone.get((realm, card_id))

    def find(self, request: AskRequest) -> Entry | None:
        """The card that this very call asked before, if it did.

        Raises:
            UserQuestionError: `ANSWER_INVALID` for an answer without a handle, and for a handle of another agent,
                another call or nobody.
            ToolError: `INVALID_ARGUMENTS` for the host's id of a call with other arguments.
        """
        if request.resumption is not None:
            return self._resumed(request, request.resumption)
        entry = self._by_key.get(self._key(request)) if request.call_key is not None else None
        if entry is not None and entry.request.call_digest != request.call_digest:
            raise ToolError(
                "INVALID_ARGUMENTS",
                reason="the call carries the id of an earlier call of this agent, found other arguments; "
                "allowed are those of the earlier call.",
            )
        return entry

    def _resumed(self, request: AskRequest, resumption: Resumption) -> Entry:
        handle = resumption.handle
        entry = self._by_handle.get(secret_hash(handle)) if handle is not None else None
        if entry is None or resumption.answer is None:
            missing = "an answer without the state it belongs to" if handle is None else "a state nobody was given"
            missing = missing if resumption.answer is not None else "a state without an answer"
            raise UserQuestionError("ANSWER_INVALID", reason=f"Found was {missing}.")
        if _agent(entry.request) != _agent(request) or entry.request.call_digest != request.call_digest:
            raise UserQuestionError("ANSWER_INVALID", reason="Found was the state of another call.")
        by_host = isinstance(entry.outcome, Answered) and entry.outcome.via != "console"
        if entry.answer_digest is None and not by_host:
            # Open, or settled at a page or terminal of ours: what came first stands.
            return entry
        if entry.answer_digest != answer_digest(resumption.answer):
            raise UserQuestionError("ANSWER_INVALID", reason="Found was a second, different answer to one question.")
        return entry

    def add(self, request: AskRequest, card_id: str | None = None, shown_since: float | None = None) -> Entry:
        entry = Entry(
            Card(
                card_id or f"ask-{secrets.token_hex(8)}",
                request,
                self._clock.now(),
                self._clock.wall_time() if shown_since is None else shown_since,
            )
        )
        if request.call_key is not None and request.agent is not None:
            entry.key = request.call_key
            self._by_key[self._key(request)] = entry
        self._by_card[_agent(request)[0], entry.card.id] = entry
        kept = self._by_agent.setdefault(_agent(request), OrderedDict())
        kept[entry.card.id] = entry
        self._forget_oldest(kept)
        return entry

    def _forget_oldest(self, kept: OrderedDict[str, Entry]) -> None:
        characters = sum(entry.characters for entry in kept.values())
        for old in list(kept.values())[:-1]:
            if len(kept) <= KEPT_CARDS and characters <= KEPT_CHARACTERS:
                return
            if old.leader is None:
                characters -= old.characters
                self.remove(old)

    def new_handle(self, entry: Entry) -> str:
        handle = new_secret()
        self.add_handle(entry, secret_hash(handle))
        return handle

    def add_handle(self, entry: Entry, hashed: str) -> None:
        entry.handles.append(hashed)
        self._by_handle[hashed] = entry
        for old in entry.handles[:-KEPT_HANDLES]:
            del self._by_handle[old]
        del entry.handles[:-KEPT_HANDLES]

    def suspend(self, entry: Entry, provider: Provider, activation: Activation | None) -> None:
        """Remember that the host shows the card; its asker's lease waits for the human."""
        entry.suspended_by = provider
        entry.card.request = replace(entry.request, channel=None, resumption=None)
        self.await_host(entry, activation)

    def await_host(self, entry: Entry, activation: Activation | None) -> None:
        """Have a card that its host shows extend the lease of its asker."""
        if entry.waiting is None and activation is not None:
            entry.waiting = activation.agent
            entry.waiting.unanswered += 1

    def settle(self, entry: Entry, outcome: Answered | SteersmanError) -> None:
        """Keep what became of the card, and nothing else of it: the same call gets it again."""
        entry.outcome = outcome
        entry.card.state = "settled"
        entry.card.request = replace(entry.request, questions=(), intent=None, channel=None, resumption=None)
        self._release(entry)

    def drop(self, entry: Entry) -> None:
        """Withdraw a card: the same call asks anew, and the human's answer to it comes late."""
        self.remove(entry)
        entry.card.state = "withdrawn"
        self._keep_gone(entry)

    def answer_late(self, entry: Entry) -> None:
        """Let go of a card that nobody waits for, and whose answer has gone another way."""
        self.remove(entry)
        entry.card.state = "settled"
        self._keep_gone(entry)

    def _keep_gone(self, entry: Entry) -> None:
        self._gone[_agent(entry.request)[0], entry.card.id] = entry
        if len(self._gone) > KEPT_GONE:
            self._gone.popitem(last=False)

    def remove(self, entry: Entry) -> None:
        self._release(entry)
        of = _agent(entry.request)
        self._by_card.pop((of[0], entry.card.id), None)
        self._gone.pop((of[0], entry.card.id), None)
        kept = self._by_agent.get(of, OrderedDict[str, Entry]())
        kept.pop(entry.card.id, None)
        if not kept:
            self._by_agent.pop(of, None)
        if entry.key is not None:
            self._by_key.pop((*of, entry.key), None)
        for hashed in entry.handles:
            self._by_handle.pop(hashed, None)

    def open_cards(self) -> Iterator[Entry]:
        """The cards that wait for the human, by agent, oldest first."""
        for kept in list(self._by_agent.values()):
            yield from [entry for entry in kept.values() if entry.card.waits]

    def open_of(self, realm: str, agent_id: str) -> list[Entry]:
        kept = self._by_agent.get((realm, agent_id), OrderedDict[str, Entry]())
        return [entry for entry in kept.values() if entry.card.waits]

    def _release(self, entry: Entry) -> None:
        if entry.waiting is not None:
            entry.waiting.unanswered -= 1
            entry.waiting = None

    def _key(self, request: AskRequest) -> tuple[str, str, str]:
        return (*_agent(request), request.call_key or "")


def answer_digest(answer: object) -> str:
    """The digest of what a host brought back. Raises `ANSWER_INVALID` for what cannot be digested."""
    try:
        return digest(answer)
    except (ValueError, RecursionError):
        raise UserQuestionError("ANSWER_INVALID", reason="Found was text that is not valid Unicode.") from None


def _agent(request: AskRequest) -> tuple[str, str]:
    return ("", "") if request.agent is None else (request.agent.realm, request.agent.id)
