"""`host.json` says what the host methods take and give, and the code does so."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from steersman.contract.files import load
from steersman.host_methods import (
    HOST_METHODS,
    EnterParams,
    ExitParams,
    InterruptParams,
    ListParams,
    NextParams,
    Params,
    PlanSetParams,
    SendParams,
    WatchParams,
)
from steersman_client import Host, HostMethodError
from tests.human import Human
from tests.json_schema import JsonSchema
from tests.requirements import requirement
from tests.world import Connect

pytestmark = pytest.mark.anyio

MODELS: dict[str, type[Params]] = {
    "steersman/agents/enter": EnterParams,
    "steersman/agents/next": NextParams,
    "steersman/agents/watch": WatchParams,
    "steersman/agents/interrupt": InterruptParams,
    "steersman/agents/send": SendParams,
    "steersman/agents/exit": ExitParams,
    "steersman/agents/list": ListParams,
    "steersman/plan/set": PlanSetParams,
}
METHODS: dict[str, Any] = load("host")["methods"]

each_method = pytest.mark.parametrize("method", MODELS)


@requirement("contract:host-methods")
def test_the_methods_are_those_that_are_served() -> None:
    assert list(METHODS) == list(HOST_METHODS) == list(MODELS)


@requirement("contract:host-methods")
@each_method
def test_parameters_are_those_of_the_model(method: str) -> None:
    said, model = METHODS[method]["params"], MODELS[method].model_json_schema()
    assert list(said["properties"]) == list(model["properties"])
    assert said["required"] == model.get("required", [])
    assert said["additionalProperties"] is model["additionalProperties"] is False
    for name, schema in said["properties"].items():
        assert schema["type"] == model["properties"][name]["type"]
        assert schema.get("enum") == model["properties"][name].get("enum")


@requirement("contract:host-methods")
@each_method
def test_results_are_closed_objects(method: str) -> None:
    result = METHODS[method]["result"]
    assert result["type"] == "object"
    assert result["required"] == list(result["properties"])
    assert result["additionalProperties"] is False


class _Checked(Host):
    """A host that holds every result against `host.json`."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.seen: set[str] = set()

    async def request(self, method: str, params: Any, **options: Any) -> dict[str, Any]:
        said = METHODS[method]
        assert JsonSchema(said["params"]).faults(dict(params)) == []
        result = await super().request(method, params, **options)
        assert JsonSchema(said["result"]).faults(result) == []
        self.seen.add(method)
        return result


@requirement("contract:host-methods")
async def test_every_result_is_what_the_file_says(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client(Human()) as client:
            host = _Checked(client)
            root = await host.enter(agent_id="main", label="Main", plan_mode=True)
            child = await host.enter(owner=root, mode="one-shot")
            await host.enter(owner=child)
            again = await host.enter(agent_id="main", resume_key=root.resume_key, supersede=True)
            assert [await again.set_plan_mode(active) for active in (True, False, False)] == [
                "noop",
                "committed",
                "noop",
            ]
            assert (await again.next(turn=0, at="begin", after=0)).open
            await again.send(child.id, "More.")
            await again.interrupt(child.id)
            await child.watch(seen=0)
            assert [message.text for message in (await child.next(turn=0, at="idle", after=0)).messages] == ["More."]
            await again.next(turn=1, at="end", after=0)
            await host.agents()
            await child.exit("failed", final="It did not work.")
            [tree] = await host.agents()
            [finished] = tree["subagents"]
            agent = JsonSchema(METHODS["steersman/agents/list"]["result"]["properties"]["agents"])
            assert agent.faults([tree, finished, *finished["subagents"]]) == []
            assert (tree["status"], finished["status"], finished["mode"]) == ("idle", "finished", "one-shot")
            assert host.seen == METHODS.keys()


@requirement("contract:host-methods")
@each_method
async def test_parameters_of_a_wrong_shape_are_a_protocol_error(connect: Connect, method: str) -> None:
    wrong: list[dict[str, Any]] = [{"more": 1}, {"credential": None}, {"credential": 7}, {"waitMs": 1}]
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            for params in wrong:
                assert not JsonSchema(METHODS[method]["params"]).accepts(params)
                with pytest.raises(MCPError) as refused:
                    await Host(client).request(method, params)
                assert refused.value.code == INVALID_PARAMS


@requirement("contract:host-methods")
async def test_a_refusal_is_the_error_object_under_the_one_code(connect: Connect) -> None:
    with anyio.fail_after(5):
        async with connect() as world, world.client() as client:
            with pytest.raises(HostMethodError) as refused:
                await Host(client).request("steersman/plan/set", {"credential": "forged", "active": True})
            assert JsonSchema(load("errors")["schema"]).faults(dict(refused.value.data)) == []
            assert refused.value.code == "CALLER_NOT_LIVE"
            assert refused.value.data["name"] == "HostError"
