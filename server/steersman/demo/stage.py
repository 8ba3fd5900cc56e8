"""What the stories play on: calls that are shown as they go over the wire, and claims that are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from mcp import Client
from mcp_types import TextContent

from steersman.demo.dialog import Dialog, Exchange
from steersman.demo.narration import Narration, Speaker
from steersman.demo.people import ScriptedPerson
from steersman_client import Agent, Host


class DoesNotHoldError(Exception):
    """Something that the demo claims of the server is not so."""


@dataclass(frozen=True)
class Reply:
    """A tool result as it came."""

    structured: Mapping[str, Any]
    exchange: Exchange | None
    """What the human was shown and said during the call."""

    @property
    def error(self) -> Mapping[str, Any]:
        return self.structured.get("error", {})

    @property
    def code(self) -> str:
        """The error's code; empty for a success."""
        return self.error.get("code", "")


@dataclass
class Stage:
    """One run of the demo."""

    client: Client
    dialog: Dialog
    narration: Narration
    script: ScriptedPerson | None
    """Who plays the human; none if the human is at the terminal."""
    host: Host = field(init=False)
    checked: int = 0
    codes: Counter[str] = field(default_factory=Counter[str])
    """How often each error came, and under an empty code, how many calls succeeded."""

    def __post_init__(self) -> None:
        self.host = Host(self.client)

    def check(self, holds: bool, claim: str, found: object) -> None:
        """Hold a claim against what was found.

        Raises:
            DoesNotHoldError: it does not hold.
        """
        if not holds:
            raise DoesNotHoldError(f"{claim}. Found: {found!r}.")
        self.checked += 1
        self.narration.say("checked", claim)

    async def call(self, who: Speaker, agent: Agent, tool: str, arguments: dict[str, Any]) -> Reply:
        """Call a tool as `agent`, and show the call and the result."""
        self.narration.say(who, f"calls {tool}")
        before = len(self.dialog.exchanges)
        result = await agent.call_tool(tool, arguments)
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        self.narration.say(who, f"gets {'the error' if result.is_error else 'the result'} {' '.join(texts)}")
        new = self.dialog.exchanges[before:]
        reply = Reply(result.structured_content or {}, new[-1] if new else None)
        self.codes[reply.code] += 1
        return reply

    def check_answered(self, reply: Reply, questions: Sequence[Mapping[str, Any]]) -> bool:
        """Check that a question's result is what the human made of the form; return whether they answered."""
        said = reply.exchange
        self.check(said is not None, "the question reached the human", reply.structured)
        assert said is not None
        match said.action:
            case "decline":
                self.check(reply.code == "ASK_DECLINED", "a declined form is ASK_DECLINED", reply.code)
            case "cancel":
                self.check(reply.code == "ASK_CANCELLED", "a dismissed form is ASK_CANCELLED", reply.code)
            case "accept":
                answers: list[dict[str, Any]] = reply.structured.get("answers", [])
                self.check(
                    [answer["id"] for answer in answers] == [question["id"] for question in questions],
                    "the result answers each question that was asked, in order",
                    answers,
                )
                chosen = tuple(label for answer in answers for label in answer["selected"])
                words = tuple(answer["custom"] for answer in answers if "custom" in answer)
                skips = sum(answer.get("skipped", False) for answer in answers)
                self.check(
                    (chosen, words, skips) == (said.chosen, said.words, said.skips),
                    "it says what the human said, and nothing else",
                    answers,
                )
            case _:
                assert_never(said.action)
        return said.action == "accept"

    async def status(self, agent: Agent) -> Mapping[str, Any]:
        """An agent as `steersman/agents/list` shows it."""
        return next(line for line in await self.agents() if line["agent_id"] == agent.id)

    async def agents(self) -> list[Mapping[str, Any]]:
        """All agents of the realm, without the tree's shape."""
        return list(_flat(await self.host.agents()))


def _flat(tree: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for agent in tree:
        yield agent
        yield from _flat(agent["subagents"])
