"""A whole run: a parent delegates, its child is refused, and the parent goes on with the child's question in hand."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from mcp_types import CallToolResult

from steersman.contract.files import contract_digest
from steersman.testing import assert_contract
from steersman_client import Host
from tests.human import Human
from tests.requirements import requirement
from tests.world import Connect, text

pytestmark = pytest.mark.anyio

QUESTION: dict[str, Any] = {
    "id": "store",
    "question": "Where should sessions live?",
    "header": "Store",
    "options": [{"label": "PostgreSQL", "description": "What we have."}, {"label": "Redis"}],
}


def shape(result: CallToolResult) -> dict[str, Any]:
    return {"text": text(result), "structured": result.structured_content, "is_error": result.is_error}


@requirement("story:delegation")
async def test_a_parent_completes_with_its_childs_question_answered(connect: Connect) -> None:
    run: list[dict[str, Any]] = []
    human = Human()
    with anyio.fail_after(5):
        async with connect() as world, world.client(human) as client, anyio.create_task_group() as group:
            host = Host(client)
            parent = await host.enter(agent_id="parent", label="Parent")
            before = await client.list_tools()
            child = await host.enter(agent_id="child", label="Child", owner=parent, mode="one-shot")
            seen_by_child = await client.list_tools(meta=child.meta)
            assert before.tools == seen_by_child.tools
            assert_contract(before.tools)
            run.append({"tools": [tool.name for tool in before.tools], "contract": contract_digest()})

            refused = await child.call_tool("ask_user_question", {"questions": [QUESTION]})
            run.append({"child": shape(refused)})
            await child.exit("completed", final="Done, but for one thing: where should sessions live?")
            run.append({"hand-over": vars(world.events[-1])})

            async def answer() -> None:
                dialog = await human.next()
                run.append({"human sees": dialog.message, "fields": dialog.fields})
                dialog.accept(q1="1")

            group.start_soon(answer)
            asked = await parent.call_tool("ask_user_question", {"questions": [QUESTION]})
            run.append({"parent": shape(asked)})
            await parent.exit("completed", final="Sessions live in PostgreSQL.")
            run.append({"agents": await host.agents()})
            assert len(human.dialogs) == 1
    assert run == snapshot(
        [
            {
                "tools": ["ask_user_question", "exit_plan_mode", "steer_subagent"],
                "contract": "68bcc1c444b9834c0f3fcf7f80cc67b97aaf52ba59ace2104793067b1a4fd918",
            },
            {
                "child": {
                    "text": "DELEGATED_CALLER: Human interaction is unavailable to an agent that another agent owns. Put the unresolved question or decision into the final result; the owner takes it from there.",
                    "structured": {
                        "error": {
                            "name": "UserQuestionError",
                            "code": "DELEGATED_CALLER",
                            "message": "Human interaction is unavailable to an agent that another agent owns. Put the unresolved question or decision into the final result; the owner takes it from there.",
                        }
                    },
                    "is_error": True,
                }
            },
            {
                "hand-over": {
                    "realm": "local",
                    "agent_id": "child",
                    "outcome": "completed",
                    "final": "Done, but for one thing: where should sessions live?",
                }
            },
            {
                "human sees": "Where should sessions live?",
                "fields": {
                    "q1": {
                        "type": "string",
                        "title": "Store",
                        "description": "PostgreSQL: What we have.",
                        "oneOf": [
                            {"const": "1", "title": "PostgreSQL"},
                            {"const": "2", "title": "Redis"},
                            {"const": "other", "title": "Other"},
                            {"const": "skip", "title": "Skip"},
                        ],
                    },
                    "q1_other": {
                        "type": "string",
                        "title": "Store: in your own words",
                        "description": "Replaces the choice.",
                    },
                },
            },
            {
                "parent": {
                    "text": '{"answers":[{"id":"store","selected":["PostgreSQL"]}],"via":"elicitation"}',
                    "structured": {"answers": [{"id": "store", "selected": ["PostgreSQL"]}], "via": "elicitation"},
                    "is_error": False,
                }
            },
            {
                "agents": [
                    {
                        "agent_id": "parent",
                        "label": "Parent",
                        "mode": "continuable",
                        "status": "stored",
                        "plan_mode": False,
                        "open_questions": 0,
                        "waiting": 0,
                        "subagents": [
                            {
                                "agent_id": "child",
                                "label": "Child",
                                "mode": "one-shot",
                                "status": "finished",
                                "plan_mode": False,
                                "open_questions": 0,
                                "waiting": 0,
                                "subagents": [],
                            }
                        ],
                    }
                ]
            },
        ]
    )
