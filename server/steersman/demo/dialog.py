"""The host's dialog: takes an elicitation, has somebody fill the form in, and remembers what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, assert_never

from mcp.client import ClientRequestContext
from mcp_types import INVALID_PARAMS, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, ErrorData

from steersman.demo.forms import Choice, Field, UnknownFieldError, Words, YesNo, read_fields
from steersman.demo.narration import Narration

Value = str | bool | list[str]
Action = Literal["accept", "decline", "cancel"]


@dataclass(frozen=True)
class Filled:
    """What became of a form: its values by field name, empty unless it was accepted."""

    action: Action
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])


class Person(Protocol):
    """Who fills forms in: the human at the terminal, or a script."""

    async def fill_in(self, fields: Sequence[Field]) -> Filled: ...


@dataclass(frozen=True)
class Exchange:
    """One form that the server sent, and what the person said to it, in the words of the form."""

    message: str
    action: Action
    chosen: tuple[str, ...]
    """The titles that were chosen, in the order of the form, without Other and Skip."""
    words: tuple[str, ...]
    skips: int


class Dialog:
    """The elicitation handler of the demo's host."""

    def __init__(self, narration: Narration, person: Person) -> None:
        self._narration = narration
        self._person = person
        self.exchanges: list[Exchange] = []
        self.shown = 0
        """How many forms the person was shown."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        if not isinstance(params, ElicitRequestFormParams):
            return ErrorData(code=INVALID_PARAMS, message="This host shows forms only.")
        try:
            fields = read_fields(params.requested_schema)
        except UnknownFieldError as unknown:
            return ErrorData(code=INVALID_PARAMS, message=str(unknown))
        self.shown += 1
        self._narration.form(params.message)
        filled = await self._person.fill_in(fields)
        exchange = _exchange(params.message, fields, filled)
        self.exchanges.append(exchange)
        self._narration.say("human", _describe(exchange))
        if filled.action != "accept":
            return ElicitResult(action=filled.action)
        return ElicitResult(action="accept", content=dict(filled.values))


def _exchange(message: str, fields: Sequence[Field], filled: Filled) -> Exchange:
    chosen: list[str] = []
    words: list[str] = []
    for one in fields:
        value = filled.values.get(one.name)
        match one:
            case Words():
                words += [value] if isinstance(value, str) else []
            case YesNo():
                chosen += [one.title] if value is True else []
            case Choice():
                values = value if isinstance(value, list) else [value]
                chosen += [offer.title for offer in one.offers if offer.value in values]
                beside = filled.values.get(one.own_words.name) if one.own_words is not None else None
                words += [beside] if isinstance(beside, str) else []
            case _:
                assert_never(one)
    offered = tuple(title for title in chosen if title not in ("Other", "Skip"))
    return Exchange(message, filled.action, offered, tuple(words), chosen.count("Skip"))


def _describe(exchange: Exchange) -> str:
    match exchange.action:
        case "decline":
            return "declines to answer"
        case "cancel":
            return "dismisses the form"
        case "accept":
            said = [f"chooses {title}" for title in exchange.chosen]
            said += [f'writes "{text}"' for text in exchange.words]
            said += [f"skips {exchange.skips}"] if exchange.skips else []
            return "; ".join(said)
        case _:
            assert_never(exchange.action)
