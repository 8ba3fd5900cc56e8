"""What is shown on the terminal. Whatever an agent wrote is shown as text that moves no cursor and hides nothing."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from steersman.text import visible

_STATUS_STYLES: Final = {"running": "green", "idle": "cyan", "finished": "dim", "stored": "dim"}
_KINDS: Final = {
    "AgentEntered": "entered",
    "AgentBound": "came over another connection too",
    "AgentUnbound": "lost one of its connections",
    "AgentExited": "exited",
    "AgentEnded": "ended",
    "QuestionAsked": "asked",
    "QuestionSuspended": "is shown a form by its host",
    "QuestionAnswered": "was answered",
    "QuestionClosed": "got no answer",
    "QuestionOrphaned": "lost its server while it asked",
    "QuestionAnsweredLate": "was answered late",
    "PlanModeSet": "plan mode",
    "PlanModeQueued": "plan mode at the next step",
    "PlanApproved": "had its plan approved",
    "TurnOpened": "opened a turn",
    "TurnInterrupted": "was interrupted",
    "TurnClosed": "closed a turn",
    "MessageAccepted": "was sent a message",
    "NoticeLeft": "was left a notice",
    "MessagesHandedOut": "was handed messages",
    "MessagesConfirmed": "has messages",
    "MessageMissed": "missed a message",
    "TokenMade": "token made",
    "TokenRevoked": "token revoked",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads on, as with `| head`: go on without a word, for the exit status."""
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())
        os.close(silence)


class Screen:
    """Standard output."""

    def __init__(self) -> None:
        # What people write is shown on every terminal, if need be spelled out.
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(errors="backslashreplace")
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def say(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Show a text of ours or of anybody's."""
        self._console.print(Text(visible(text, multiline=True), style), end=end)

    def rule(self, title: str) -> None:
        self._console.print(Text(f"── {visible(title)} ", "bold yellow"))

    def card(self, card: Mapping[str, Any], number: int, count: int, now: datetime) -> None:
        """Show who asks, since when, and the plan if the card reviews one. Its questions are shown one by one."""
        self.say()
        self.rule(f"{number} of {count}: {_name(card)} asks")
        asked = f"asked {_ago(datetime.fromisoformat(card['asked_at']), now)}, card {card['card_id']}"
        self.say(f"{asked}, {card['host']}" if card["host"] not in ("", card["agent"]) else asked, "dim")
        if card["orphaned"]:
            self.say("Its server died while it waited: an answer reaches the agent as a message.", "yellow")
        if "plan" in card:
            # Its source, whole: rendered, a comment in it would not be seen.
            self.say()
            self.say(card["plan"])

    def question(self, question: Mapping[str, Any], number: int, count: int) -> None:
        """Show a question and what it offers, numbered."""
        self.say()
        at = f"Question {number} of {count}. " if count > 1 else ""
        header = f"[{question['header']}] " if question["header"] else ""
        self.say(f"{at}{header}{question['question']}", "bold")
        for place, option in enumerate(question["options"], start=1):
            description = f"  {option['description']}" if option["description"] else ""
            self.say(f"  {place}) {option['label']}{description}")

    def waiting(self, cards: Sequence[Mapping[str, Any]], now: datetime) -> None:
        """Show what waits, whole."""
        for number, card in enumerate(cards, start=1):
            self.card(card, number, len(cards), now)
            for at, question in enumerate(card["questions"], start=1):
                self.question(question, at, len(card["questions"]))

    def agents(self, agents: Sequence[Mapping[str, Any]]) -> None:
        """Show the agents as a tree."""
        for agent in agents:
            tree = Tree(_agent_line(agent), guide_style="dim")
            _grow(tree, agent)
            self._console.print(tree)

    def history(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Show events, a line each."""
        for event in events:
            moment = datetime.fromisoformat(event["time"]).astimezone().isoformat(" ", "seconds")[:19]
            said = _details(event)
            kind = _KINDS.get(event["kind"], event["kind"])
            self.say(f"{moment}  {event['agent_id'] or '-'}  {kind}{': ' + said if said else ''}")


def _grow(tree: Tree, agent: Mapping[str, Any]) -> None:
    for subagent in agent["subagents"]:
        _grow(tree.add(_agent_line(subagent)), subagent)


def _agent_line(agent: Mapping[str, Any]) -> Text:
    status = agent["status"]
    line = Text(visible(agent["agent_id"]), "bold")
    if agent["label"] and agent["label"] != agent["agent_id"]:
        line.append(f" {visible(agent['label'])}", "default")
    line.append(f"  {status}", _STATUS_STYLES.get(status, ""))
    for what in _states(agent):
        line.append(f", {what}", "yellow")
    return line


def _states(agent: Mapping[str, Any]) -> list[str]:
    questions, messages = agent["open_questions"], agent["waiting"]
    said = ["plan mode"] if agent["plan_mode"] else []
    said += [f"{_count(questions, 'question')} open"] if questions else []
    return said + ([f"{_count(messages, 'message')} unread"] if messages else [])


def _details(event: Mapping[str, Any]) -> str:
    """What an event says, in one line."""
    said: list[str] = []
    for question in event.get("questions", []):
        said.append(question["question"])
    for answer in event.get("answers", []):
        words = [*answer["selected"], *([answer["custom"]] if answer["custom"] else [])]
        said.append("-> " + (", ".join(words) or "skipped"))
    for name in ("text", "code", "reason", "outcome", "by", "active", "turn", "owner_id", "label"):
        value = event.get(name)
        if value not in (None, ""):
            said.append(f"{name} {value}" if name in ("turn", "owner_id") else str(value))
    return " ".join(" ".join(said).split())


def _name(card: Mapping[str, Any]) -> str:
    return f"{card['agent']} ({card['agent_id']})" if card["agent"] else card["agent_id"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")


def _ago(then: datetime, now: datetime) -> str:
    seconds = int((now - then.astimezone(UTC)).total_seconds())
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{_count(seconds // size, unit)} ago"
    return "just now"
