"""What was told, compared with what is stored and with what everybody else was told."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.host import text_of

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Stored:
    """The journal's tables that matter here, read by nothing of ours."""

    messages: Mapping[str, Entry]
    """By id."""
    questions: Mapping[str, Entry]
    """By card."""
    entries: Mapping[str, int]
    """How often each agent was entered."""
    damage: Sequence[str]


def read_journal(path: Path) -> Stored:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        rows = connection.execute("SELECT agent_id, count(*) AS times FROM activations GROUP BY agent_id")
        entries = {row["agent_id"]: row["times"] for row in rows}
        messages = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM messages")}
        questions = {row["card_id"]: dict(row) for row in connection.execute("SELECT * FROM questions")}
        found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        return Stored(messages, questions, entries, [] if found == ["ok"] else found)
    finally:
        connection.close()


def differences(stored: Stored, hosts: Mapping[str, Sequence[Entry]], human: Sequence[Entry]) -> Iterator[str]:
    """Everything that somebody was told and that is not so."""
    for damage in stored.damage:
        yield f"the journal is damaged: {damage}"
    everything = [entry for log in hosts.values() for entry in log]
    yield from _messages(stored, everything)
    yield from _order(stored, everything)
    yield from _questions(stored, everything, human)
    yield from _entries(stored, everything)


def _messages(stored: Stored, logs: Sequence[Entry]) -> Iterator[str]:
    sent = {entry["key"]: entry for entry in logs if entry["event"] == "sending"}
    accepted = {entry["key"]: entry["message_id"] for entry in logs if entry["event"] == "accepted"}
    refused = {entry["key"] for entry in logs if entry["event"] == "refused"}
    reads = [entry for entry in logs if entry["event"] == "read"]
    read = {entry["message_id"]: entry for entry in reads}
    for key in sent.keys() - accepted.keys() - refused:
        yield f"nobody ever learned what became of message {key}"
    for key, message_id in accepted.items():
        row, got = stored.messages.get(message_id), read.get(message_id)
        if row is None:
            yield f"message {key} was accepted as {message_id} and is not stored"
        elif row["text"] != text_of(key) or row["agent_id"] != sent[key]["to"]:
            yield f"message {key} is stored with another text or for somebody else"
        if got is None:
            yield f"message {key} was accepted as {message_id} and never read"
        elif (got["agent_id"], got["key"], got["size"]) != (sent[key]["to"], key, len(text_of(key))):
            yield f"message {key} was read as something else, or by somebody else"
    for message_id, times in Counter(entry["message_id"] for entry in reads).items():
        if times > 1:
            yield f"message {message_id} was read {times} times"
    for key, times in Counter(entry["key"] for entry in reads if entry["kind"] == "agent").items():
        if times > 1 or accepted.get(key) is None:
            yield f"message {key} was read {times} times; it was accepted as {accepted.get(key)}"
    for message_id, row in stored.messages.items():
        if message_id not in read:
            yield f"message {message_id} for {row['agent_id']} is stored ({row['state']}) and was never read"
        elif row["seq"] != read[message_id]["seq"]:
            yield f"message {message_id} was read as number {read[message_id]['seq']} and is stored as {row['seq']}"
    for message_id in read.keys() - stored.messages.keys():
        yield f"message {message_id} was read and is not stored"


def _order(stored: Stored, logs: Sequence[Entry]) -> Iterator[str]:
    """Whether each agent read by rising numbers, and what lay in one queue in the order of sending."""
    newest: dict[str, int] = {}
    place: dict[tuple[str, str], int] = {}
    for entry in (each for each in logs if each["event"] == "read"):
        if entry["seq"] <= newest.get(entry["agent_id"], 0):
            yield f"{entry['agent_id']} read number {entry['seq']} after {newest[entry['agent_id']]}"
        newest[entry["agent_id"]] = entry["seq"]
        row = stored.messages.get(entry["message_id"])
        if row is not None and entry["kind"] == "agent":
            queue, number = (entry["agent_id"], row["queue"]), int(entry["key"].rpartition(":")[2])
            if number <= place.get(queue, -1):
                yield f"{entry['agent_id']} read {entry['key']} after {place[queue]} of the same queue"
            place[queue] = number


def _questions(stored: Stored, logs: Sequence[Entry], human: Sequence[Entry]) -> Iterator[str]:
    answers = {
        _key(row): _labels(row) for row in stored.questions.values() if row["answers"] and not row["late_message"]
    }
    given: dict[str, set[str]] = {}
    for entry in human:
        if entry["event"] == "answering":
            given.setdefault(entry["question"], set()).add(entry["label"])
    for entry in logs:
        if entry["event"] == "dialog":
            given.setdefault(entry["form"], set()).add(entry["label"])
    asked = {entry["key"] for entry in logs if entry["event"] == "asking"}
    answered = {entry["key"]: entry["labels"] for entry in logs if entry["event"] == "answered"}
    for key in asked - answered.keys():
        yield f"question {key} was never answered"
    for key, labels in answered.items():
        question = f"Where to, {key}?"
        if answers.get(question) != labels:
            yield f"question {key} was answered with {labels}, and {answers.get(question)} is stored"
        if not set(labels) <= given.get(question, set()):
            yield f"question {key} was answered with {labels}, which nobody said"
    for entry in human:
        row = stored.questions.get(entry["card_id"])
        if entry["event"] != "told" or entry["told"] not in ("answered", "late"):
            continue
        if row is None or _labels(row) != [entry["label"]] or bool(row["late_message"]) != (entry["told"] == "late"):
            yield f"the human was told that {entry['label']} is the {entry['told']} answer to {entry['card_id']}"
    for row in stored.questions.values():
        if row["late_message"] and row["late_message"] not in stored.messages:
            yield f"the late answer to {row['card_id']} is no message"
        if row["settled_at"] is None and not row["orphaned"]:
            yield f"question {row['card_id']} is still open"


def _key(row: Entry) -> str:
    return json.loads(row["questions"])[0]["question"]


def _labels(row: Entry) -> list[str]:
    return json.loads(row["answers"] or "[{}]")[0].get("selected", [])


def _entries(stored: Stored, logs: Sequence[Entry]) -> Iterator[str]:
    """Whether an agent had to be entered more often than its host did for reasons of its own."""
    begun = Counter(entry["agent_id"] for entry in logs if entry["event"] == "entering")
    for agent_id, times in stored.entries.items():
        if times > begun[agent_id]:
            yield f"agent {agent_id} was entered {times} times; its host meant to {begun[agent_id]} times"
