"""An elicitation's `requested_schema` as fields to fill in, whichever revision of MCP spelled it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from steersman.json_values import is_list, is_object

_OWN_WORDS: Final = "_other"
"""`q1_other` takes the words that go with the choice `q1`."""


class UnknownFieldError(Exception):
    """The form has a field of a kind that cannot be shown here; the message says which."""


@dataclass(frozen=True)
class Words:
    """A field for text."""

    name: str
    title: str
    description: str
    required: bool


@dataclass(frozen=True)
class YesNo:
    """A field for yes or no."""

    name: str
    title: str
    description: str


@dataclass(frozen=True)
class Choice:
    """A field for one or several of the values on offer."""

    name: str
    title: str
    description: str
    offers: tuple[Offer, ...]
    many: bool
    own_words: Words | None
    """The field beside it that takes an answer in words."""

    def offer(self, title: str) -> Offer | None:
        """The offer of that title, in whatever case."""
        return next((offer for offer in self.offers if offer.title.casefold() == title), None)


@dataclass(frozen=True)
class Offer:
    """One value on offer, and what the human reads."""

    value: str
    title: str


Field = Words | YesNo | Choice


def read_fields(schema: Mapping[str, object]) -> list[Field]:
    """Read a form's schema.

    Returns:
        Its fields in the order of the form; own words stand with their choice, not by themselves.

    Raises:
        UnknownFieldError: it asks for something that is no text, choice, or yes or no.
    """
    properties = schema.get("properties")
    required = schema.get("required", [])
    if not is_object(properties) or not is_list(required):
        raise UnknownFieldError("The form has no fields.")
    fields = {name: _read(name, spec, name in required, properties) for name, spec in properties.items()}
    taken = {field.own_words.name for field in fields.values() if isinstance(field, Choice) and field.own_words}
    return [field for name, field in fields.items() if name not in taken]


def _read(name: str, spec: object, required: bool, properties: Mapping[str, object]) -> Field:
    if not is_object(spec):
        raise UnknownFieldError(f"The form's field {name!r} has no schema.")
    title, description = str(spec.get("title") or name), str(spec.get("description") or "")
    items = spec.get("items")
    offers = _offers(items if is_object(items) else spec)
    match spec.get("type"):
        case "string" | "array" as kind if offers:
            beside = f"{name}{_OWN_WORDS}"
            words = _read(beside, properties[beside], False, properties) if beside in properties else None
            own_words = words if isinstance(words, Words) else None
            return Choice(name, title, description, offers, kind == "array", own_words)
        case "string":
            return Words(name, title, description, required)
        case "boolean":
            return YesNo(name, title, description)
        case kind:
            raise UnknownFieldError(f"The form's field {name!r} is of type {kind!r}, which this host cannot show.")


def _offers(spec: Mapping[str, object]) -> tuple[Offer, ...]:
    titled = spec.get("oneOf", spec.get("anyOf"))
    if is_list(titled):
        return tuple(Offer(str(one["const"]), str(one.get("title", one["const"]))) for one in titled if is_object(one))
    values, names = spec.get("enum"), spec.get("enumNames")
    if not is_list(values):
        return ()
    titles = names if is_list(names) else values
    return tuple(Offer(str(value), str(title)) for value, title in zip(values, titles, strict=True))
