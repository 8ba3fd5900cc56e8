"""What the folds of a server hold, as plain values: of the one that lives, and of one rebuilt from its files."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steersman.clock import Clock
from steersman.mailboxes import Mailbox
from steersman.providers.elicitation import ElicitationProvider
from steersman.questions.cards import CardStore, Entry
from steersman.questions.requests import Answered, Provider
from steersman.registry import Activation, Agent, Binding
from steersman.services import Services, make_services
from steersman.storage.journal import open_journal

Folds = Mapping[str, Any]


def folds(services: Services) -> Folds:
    """Everything that has to outlive the process. What a dead server had open itself counts as orphaned."""
    registry, questions = vars(services.registry), vars(services.questions)
    boxes = {of: asdict(box) for of, box in vars(services.mailboxes)["_boxes"].items()}
    return {
        "agents": [_agent(agent) for agent in registry["_agents"].values()],
        "live": [_activation(activation) for activation in registry["_live"]],
        "credentials": {hashed: activation.id for hashed, activation in registry["_by_credential"].items()},
        "bindings": {binding.key: _binding(binding) for binding in registry["_bindings"].values() if binding.living},
        "mailboxes": {of: box for of, box in boxes.items() if box != asdict(Mailbox())},
        "plan modes": {of: asdict(mode) for of, mode in vars(services.plan_mode)["_states"].items() if _is_set(mode)},
        # Those that finished call no more.
        "receipts": {
            of: list(kept.items())
            for of, kept in vars(services.steering)["_receipts"].items()
            if kept and not registry["_agents"][of].finished
        },
        **_cards(questions["_cards"]),
        "tokens": services.tokens.list(),
    }


def differences(before: Folds, after: Folds) -> Mapping[str, Any]:
    """What two servers do not know alike."""
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _is_set(mode: Any) -> bool:
    return mode.active or mode.queued is not None


def _agent(agent: Agent) -> Mapping[str, Any]:
    return {
        "id": (agent.realm, agent.id),
        "label": agent.label,
        "mode": agent.mode,
        "header": agent.header,
        "key": agent.key_hash,
        "finished": agent.finished,
        "unanswered": agent.unanswered,
        "current": None if agent.current is None else _activation(agent.current),
        "subagents": list(agent.subagents),
    }


def _activation(activation: Activation) -> Mapping[str, Any]:
    return {
        "id": (activation.realm, activation.id),
        "owner": activation.owner_id,
        "bindings": {binding.key for binding in activation.bindings},
        "entered on": activation.entered_on.key if activation.entered_on is not None else None,
        "credential": activation.credential_hash,
        "leased": activation.leased,
    }


def _binding(binding: Binding) -> Mapping[str, Any]:
    return {
        "realm": binding.realm,
        "root": binding.root.id if binding.root is not None and not binding.root.ended else None,
        "entered": binding.entered,
        "living": [activation.id for activation in binding.living],
    }


def _cards(cards: CardStore) -> Mapping[str, Any]:
    store = vars(cards)
    kept: list[Entry] = [entry for entry in store["_by_card"].values() if _is_of_use(entry)]
    by_agent: dict[Any, list[Any]] = {}
    for of, found in store["_by_agent"].items():
        for entry in found.values():
            if _is_of_use(entry):
                by_agent.setdefault(of, []).append(_card(entry))
    return {
        "cards": by_agent,
        "handles": {handle: entry.card.id for handle, entry in store["_by_handle"].items() if _is_of_use(entry)},
        "keys": {key: entry.card.id for key, entry in store["_by_key"].items() if _is_of_use(entry)},
        "known": {(entry.request.agent.realm if entry.request.agent else "", entry.card.id) for entry in kept},
    }


def _is_of_use(entry: Entry) -> bool:
    """Whether it is open, or its call can come again: nobody but that call reads an outcome."""
    asker = entry.request.agent
    is_over = asker is not None and asker.agent.finished
    return entry.outcome is None or (not is_over and (entry.key is not None or bool(entry.handles)))


def _card(entry: Entry) -> Mapping[str, Any]:
    request, outcome = entry.request, entry.outcome
    is_open = entry.card.state == "open"
    return {
        "id": entry.card.id,
        "state": "orphaned" if is_open and entry.suspended_by is None else entry.card.state,
        "shown since": entry.card.shown_since,
        "questions": request.questions,
        "plan": request.intent,
        "digest": request.call_digest,
        "key": entry.key,
        "handles": entry.handles,
        "shown by": entry.suspended_by.name if entry.suspended_by is not None else None,
        "answer": entry.answer_digest,
        "outcome": asdict(outcome) if isinstance(outcome, Answered) else outcome and (outcome.code, outcome.reason),
        "keeps": entry.waiting.id if entry.waiting is not None else None,
    }


@asynccontextmanager
async def crashed(
    state_dir: Path, clock: Clock, providers: Sequence[Provider] | None = None
) -> AsyncGenerator[Services]:
    """The server that comes after one that dies now, with what is on the disk at this moment."""
    with TemporaryDirectory() as copy:
        for path in state_dir.glob("journal.sqlite3*"):
            shutil.copy(path, copy)
        async with open_journal(Path(copy), clock=clock) as journal:
            yield make_services(
                [ElicitationProvider()] if providers is None else providers, clock=clock, journal=journal
            )
