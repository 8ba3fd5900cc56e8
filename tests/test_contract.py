"""The frozen contract as it lies on disk: its words, its shape, and that the code says the same."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest

from steersman import errors
from steersman.canonical import canonical, compact, digest
from steersman.contract.files import TOOL_NAMES, contract_digest, contract_dir, load, released_digest, tools
from steersman.contract.results import error_object
from steersman.errors import Code, SteersmanError, SubagentLine
from steersman.json_values import is_list, is_object
from tests.json_schema import JsonSchema
from tests.requirements import requirement

INPUT_WORDS = {"type", "properties", "required", "items", "enum", "description", "additionalProperties"}
# Each of them is a program that runs agents, or the maker of one.
HOSTS = re.compile(
    "claude|anthropic|codex|openai|chatgpt|cursor|opencode|gemini|copilot|windsurf|cline|goose|vs ?code|deepseek|qwen",
    re.IGNORECASE,
)
BAD_ADVICE = re.compile(
    r"\b(re-?tr(y|ies|ied|ying)|try again|(call|ask|invoke|submit|send)( (it|this|the \w+))? again|time-?outs?"
    r"|wait (longer|more)|guess\w*|assum\w+|best judge?ment|(go|carry) on|proceed\w*"
    r"|continue with(out)?|default answer)\b",
    re.IGNORECASE,
)

each_tool = pytest.mark.parametrize("name", TOOL_NAMES)


def schemas_in(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and every schema inside it."""
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from schemas_in(inner)
    if "items" in schema:
        yield from schemas_in(schema["items"])


def keys_in(value: object) -> Iterator[str]:
    if is_object(value):
        yield from value
    for inner in value.values() if is_object(value) else value if is_list(value) else ():
        yield from keys_in(inner)


def texts_in(value: object) -> Iterator[str]:
    """All texts but the keys: those of `_meta` are a host's own words, and no model reads them."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if is_object(value) else value if is_list(value) else ():
        yield from texts_in(inner)


def classes() -> dict[str, type[SteersmanError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SteersmanError)]
    return {found_class.__name__: found_class for found_class in found if found_class is not SteersmanError}


@requirement("contract:digest")
def test_the_contract_is_the_released_one_in_every_file() -> None:
    assert contract_digest() == released_digest() == (contract_dir() / "CONTRACT.sha256").read_text().strip()
    files = {path.name: load(path.stem) for path in contract_dir().glob("*.json")}
    assert digest(files) == released_digest()


@requirement("contract:digest")
@pytest.mark.parametrize("name", [*TOOL_NAMES, "errors", "server", "host"])
def test_the_digest_moves_with_every_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(asked: str) -> Mapping[str, Any]:
        return {**load(asked), "more": ""} if asked == name else load(asked)

    monkeypatch.setattr("steersman.contract.files.load", changed)
    assert contract_digest() != released_digest()


@requirement("contract:input-words")
@each_tool
def test_input_schemas_hold_only_the_words_that_every_provider_takes(name: str) -> None:
    for schema in schemas_in(load(name)["inputSchema"]):
        assert schema.keys() <= INPUT_WORDS
        assert schema["type"] in ("object", "array", "string", "boolean")
        if schema["type"] == "object":
            assert schema.keys() >= {"properties", "required", "additionalProperties"}
            assert schema["additionalProperties"] is False
            assert set(schema["required"]) <= schema["properties"].keys()
        else:
            assert not schema.keys() & {"properties", "required", "additionalProperties"}
        assert ("items" in schema) == (schema["type"] == "array")
        assert all(isinstance(value, str) for value in schema.get("enum", []))


@requirement("contract:input-words")
@each_tool
def test_every_property_of_an_input_schema_is_described(name: str) -> None:
    for schema in schemas_in(load(name)["inputSchema"]):
        for inner in schema.get("properties", {}).values():
            assert inner["description"].strip()


@requirement("contract:output-shape")
@each_tool
def test_an_output_schema_tells_success_and_error_apart_by_what_is_required(name: str) -> None:
    schema = load(name)["outputSchema"]
    assert schema.keys() == {"type", "properties", "oneOf"}
    assert schema["type"] == "object"
    assert "$schema" not in set(keys_in(schema))
    success, failure = schema["oneOf"]
    assert success.keys() == failure.keys() == {"required"}
    assert failure["required"] == ["error"]
    assert set(success["required"]) == schema["properties"].keys() - {"error"}
    JsonSchema(schema)


@requirement("contract:output-shape")
@each_tool
def test_the_error_object_is_the_one_of_the_errors_file(name: str) -> None:
    assert canonical(load(name)["outputSchema"]["properties"]["error"]) == canonical(load("errors")["schema"])


@requirement("contract:table")
def test_the_tools_are_those_of_the_table_in_its_order() -> None:
    meta = {"anthropic/alwaysLoad": True, "steersman/contract": "v1"}
    hints = {
        "ask_user_question": {"readOnlyHint": True, "idempotentHint": False, "openWorldHint": False},
        "exit_plan_mode": {"readOnlyHint": True, "openWorldHint": False},
        "steer_subagent": {
            "readOnlyHint": False,
            "destructiveHint": False,
            "idempotentHint": False,
            "openWorldHint": False,
        },
    }
    members = ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"]
    assert [tool["name"] for tool in tools()] == list(hints)
    for tool in tools():
        assert list(tool) == members
        assert canonical(tool["annotations"]) == canonical(hints[tool["name"]])
        assert canonical(tool["_meta"]) == canonical(meta)


@requirement("contract:table")
def test_inputs_and_results_are_those_of_the_table_in_reading_order() -> None:
    def shape(schema: Mapping[str, Any]) -> Any:
        if schema["type"] == "object":
            return {name + "*" * (name in schema["required"]): shape(s) for name, s in schema["properties"].items()}
        return [shape(schema["items"])] if schema["type"] == "array" else schema.get("enum", schema["type"])

    option = {"label*": "string", "description": "string"}
    question = {"id*": "string", "question*": "string", "header": "string", "options": [option]}
    inputs = {name: shape(load(name)["inputSchema"]) for name in TOOL_NAMES}
    wanted = {
        "ask_user_question": {"questions*": [{**question, "multi_select": "boolean"}]},
        "exit_plan_mode": {"plan*": "string"},
        "steer_subagent": {"subagent_id*": "string", "message*": "string", "mode": ["step", "turn"]},
    }
    # As text, because that keeps the order of keys.
    assert compact(inputs) == compact(wanted)
    results = {name: [*load(name)["outputSchema"]["properties"]] for name in TOOL_NAMES}
    assert results == {
        "ask_user_question": ["answers", "via", "error"],
        "exit_plan_mode": ["approved", "plan_sha256", "review_id", "via", "error"],
        "steer_subagent": ["route", "message_id", "queued_ahead", "error"],
    }


@requirement("contract:errors")
def test_codes_and_names_are_those_of_the_code() -> None:
    described = load("errors")["codes"]
    assert list(described) == list(get_args(Code))
    named = {name for entry in described.values() for name in entry["names"]}
    assert named == classes().keys()


@requirement("contract:errors")
def test_templates_hold_only_the_four_variables_and_each_is_a_property_of_the_error_object() -> None:
    properties = load("errors")["schema"]["properties"]
    assert list(properties) == ["name", "code", "message", "reason", "feedback", "reference", "subagents"]
    for entry in load("errors")["codes"].values():
        assert entry.keys() <= {"names", "message", "reason", "feedback"}
        used = {name for key, text in entry.items() if key != "names" for name in re.findall(r"{(\w*)}", text)}
        assert used <= {"feedback", "reason", "subagents", "reference"}


@requirement("contract:words")
@each_tool
def test_descriptions_are_short_and_say_what_comes_back(name: str) -> None:
    description = load(name)["description"]
    assert len(description) < 1000
    assert "Use it when" in description or "Use it in" in description
    assert "Returns" in description


@requirement("contract:words")
def test_the_instructions_are_short() -> None:
    assert len(load("server")["instructions"]) < 600


@requirement("contract:words")
@pytest.mark.parametrize("name", [*TOOL_NAMES, "errors", "server", "host"])
def test_no_text_names_a_host_or_advises_to_call_again_to_wait_longer_or_to_guess(name: str) -> None:
    for text in texts_in(load(name)):
        assert not HOSTS.search(text), text
        assert not BAD_ADVICE.search(text), text


@requirement("contract:words")
@pytest.mark.parametrize(
    "advice", ["Please retry.", "Call the tool again.", "Raise the timeout.", "Make your best guess.", "Proceed."]
)
def test_the_check_on_advice_finds_it(advice: str) -> None:
    assert BAD_ADVICE.search(advice)


@requirement("contract:results")
@pytest.mark.parametrize("code", get_args(Code))
@each_tool
def test_every_error_with_all_its_variables_is_what_each_output_schema_says(name: str, code: Code) -> None:
    schema = JsonSchema(load(name)["outputSchema"])
    for error_name in load("errors")["codes"][code]["names"]:
        error = classes()[error_name](
            code,
            reason="Found {this}.",
            feedback="{feedback} \U0001f469\u200d\U0001f4bb",
            reference="r",
            subagents=[SubagentLine("a", "{reason}", "live")],
        )
        found = error_object(error)
        assert found["name"] == error_name
        assert list(found) == list(load("errors")["schema"]["properties"])
        assert not schema.faults({"error": found})
        assert not schema.accepts({"error": {**found, "more": 1}})
        assert not schema.accepts({})


@requirement("contract:results")
@each_tool
def test_a_result_is_either_good_or_bad(name: str) -> None:
    schema = JsonSchema(load(name)["outputSchema"])
    good = {
        "ask_user_question": {"answers": [{"id": "q", "selected": ["A"], "custom": "and B"}], "via": "console"},
        "exit_plan_mode": {"approved": True, "plan_sha256": "0", "review_id": "r", "via": "elicitation"},
        "steer_subagent": {"route": "cold-resume", "message_id": "m", "queued_ahead": 0},
    }[name]
    assert not schema.faults(good)
    both = copy.deepcopy({**good, "error": {"name": "ToolError", "code": "INTERNAL_ERROR", "message": "m"}})
    assert not schema.accepts(both)
    if name == "exit_plan_mode":
        assert not schema.accepts({**good, "approved": False})
