"""`steersman demo`, as a process of its own against a server process of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.demo.processes import COMMAND, against, at_terminal, run
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

TRANSPORTS = pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])


def essential(output: str) -> str:
    """What is said of the server, without ids, without what the human reads, and cut to a width."""
    kept = [line for line in output.splitlines() if line[:1].strip() and not line.startswith("host ")]
    masked = re.sub(r"(agent|ask|msg)-[0-9a-f]+", r"\1-ID", "\n".join(kept))
    return "\n".join(line if len(line) <= 110 else f"{line[:109]}…" for line in masked.splitlines())


@requirement("demo:runs")
@TRANSPORTS
async def test_the_demo_runs_by_itself_and_everything_it_claims_holds(http: bool):
    ended = await run([*COMMAND, "--auto", *(["--http"] if http else [])])

    assert ended.code == 0, ended.output
    title, *story = essential(ended.output).splitlines()
    assert title.endswith("over HTTP." if http else "over stdio.")
    assert "\n".join(story) == snapshot("""\
No model runs here: what the agents do is scripted, what they are told comes over the wire.
A script answers for the human (--auto).
1. An agent asks the human
main      calls ask_user_question
human     reads:
human     chooses PostgreSQL; chooses Load test; chooses Security review; writes "Nobody may be signed out by…
main      gets the result {"answers":[{"id":"store","selected":["PostgreSQL"]},{"id":"checks","selected":["Lo…
checked   the question reached the human
checked   the result answers each question that was asked, in order
checked   it says what the human said, and nothing else
2. A plan is reviewed
checked   main is in plan mode now
main      calls exit_plan_mode
human     reads:
human     writes "Say how we get back if the switch goes wrong."
main      gets the error KEEP_PLANNING: The human did not approve the plan. Plan mode stays on. Their words: …
checked   the human was shown the whole plan
checked   a plan that is not approved is KEEP_PLANNING
checked   the feedback is what the human wrote, unchanged
checked   plan mode stays on
main      revises the plan with that feedback quoted, and presents it again
main      calls exit_plan_mode
human     reads:
human     chooses Approve
main      gets the result {"approved":true,"plan_sha256":"6bb7ee26de205ea8936d10dbb734c094bb3a67fd679c00a76ff…
checked   the human was shown the whole plan
checked   the plan is approved
checked   the approval names the SHA-256 of the plan that main sent, 6bb7ee26de205ea8936d10dbb734c094bb3a67fd…
checked   plan mode is off
checked   it took two reviews, as the script had it
3. A subagent asks, and its owner asks for it
subagent  calls ask_user_question
subagent  gets the error DELEGATED_CALLER: Human interaction is unavailable to an agent that another agent ow…
checked   the subagent is refused with DELEGATED_CALLER
checked   the human was shown nothing
checked   no question of the subagent waits
subagent  ends with the final result {"done": "looked through the sessions", "refused": "DELEGATED_CALLER", "…
checked   the subagent has finished
main      reads that final result, and goes on: it asks what is open there
main      calls ask_user_question
human     reads:
human     chooses The newer one
main      gets the result {"answers":[{"id":"duplicates","selected":["The newer one"]}],"via":"elicitation"}
checked   the question reached the human
checked   the result answers each question that was asked, in order
checked   it says what the human said, and nothing else
checked   the human was shown the subagent's very question
main      carries on: duplicates: The newer one
4. A working subagent is steered
control   says: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
checked   nobody steers it, and it counts all twelve
subagent  says: 1, 2, 3 (and is in the middle of a step)
main      sends it "Three is enough. Say why you stop." by mode step
main      calls steer_subagent
main      gets the result {"route":"step","message_id":"msg-ID","queued_ahead":0}
checked   it is running, so the route is step, and nothing is queued ahead
subagent  says: I was told: "Three is enough. Say why you stop." I end here.
checked   one to three are kept, four to twelve never run
checked   it has read that very message, once, as main's
checked   it quotes the instruction
subagent  says: 1, 2, 3, 4 (and is in the middle of a step)
main      sends it "Leave that step, it never ends." by mode turn
main      calls steer_subagent
main      gets the result {"route":"turn","message_id":"msg-ID","queued_ahead":0}
checked   it is running, so the route is turn, and nothing is queued ahead
subagent  says: I was told: "Leave that step, it never ends." I end here.
checked   the step in flight is stopped, and one to four are kept
checked   the message opens a turn of its own
checked   it has read that very message, once, as main's
checked   it quotes the instruction
subagent  says: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 (and is in the middle of a step)
main      sends it "Before you go: was that all?" by mode step
main      calls steer_subagent
main      gets the result {"route":"step","message_id":"msg-ID","queued_ahead":0}
checked   it is running, so the route is step, and nothing is queued ahead
subagent  says: I was told: "Before you go: was that all?" I end here.
checked   the turn does not close: the message is read in an extra step
checked   it has read that very message, once, as main's
checked   it quotes the instruction
What was seen
checked   no agent is left alive
8 tool calls: 6 answered, 1 KEEP_PLANNING, 1 DELEGATED_CALLER; 4 forms shown to the human; 36 claims checked,…\
""")


@requirement("demo:honest")
async def test_without_a_terminal_a_script_answers_and_the_demo_says_so():
    ended = await run(COMMAND)

    assert ended.code == 0, ended.output
    assert "A script answers for the human (standard input is no terminal)." in ended.output


@requirement("demo:orderly")
async def test_a_reader_of_the_output_who_leaves_does_not_fail_the_demo():
    ended = await run(["bash", "-o", "pipefail", "-c", f"{shlex.join([*COMMAND, '--auto'])} | true"])

    assert (ended.code, ended.output) == (0, "")


@requirement("demo:person")
async def test_the_words_of_the_person_at_the_terminal_come_back_to_the_agent():
    async with at_terminal(COMMAND) as terminal:
        await terminal.type("7", "o", "SQLite, 一个文件就够了")
        await terminal.type("1 3 o", "and a walk around the block")
        await terminal.type("", "No e-mail to users.")
        await terminal.type("o", "Not on a Monday.")
        await terminal.type("Approve", "1")
        await terminal.type("s")
        ended = await terminal.end()

    assert ended.code == 0, ended.output
    assert '{"id":"store","selected":[],"custom":"SQLite, 一个文件就够了"}' in ended.output
    assert '"selected":["Load test","Dry run on a copy"],"custom":"and a walk around the block"}' in ended.output
    assert '{"id":"limits","selected":[],"custom":"No e-mail to users."}' in ended.output
    assert "Their words: Not on a Monday." in ended.output
    assert "> Not on a Monday." in ended.output
    assert '{"id":"duplicates","selected":[],"skipped":true}' in ended.output
    assert [line.strip() for line in ended.output.splitlines() if "on offer" in line or "needed" in line] == [
        "'7' is not on offer here.",
        "Words are needed here.",
        "'approve' is not on offer here.",
    ]


@requirement("demo:person")
async def test_a_person_who_declines_dismisses_and_approves_at_once_is_taken_at_their_word():
    async with at_terminal([*COMMAND, "--http"]) as terminal:
        await terminal.type("2", "d")
        await terminal.type("1")
        await terminal.type("c")
        ended = await terminal.end()

    assert ended.code == 0, ended.output
    assert "checked   a declined form is ASK_DECLINED" in ended.output
    assert "no revision was asked for" in ended.output
    assert "checked   a dismissed form is ASK_CANCELLED" in ended.output


@requirement("demo:person")
async def test_a_plan_that_its_person_leaves_undecided_keeps_plan_mode_on():
    async with at_terminal(COMMAND) as terminal:
        await terminal.type("c")
        await terminal.type("2", "d")
        await terminal.type("3")
        ended = await terminal.end()

    assert ended.code == 0, ended.output
    assert ended.output.count("checked   plan mode stays on") == 2
    assert "plan mode is off" not in ended.output


@requirement("demo:orderly")
@TRANSPORTS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_demo_and_the_server_it_started(http: bool, number: signal.Signals, tmp_path: Path):
    pid_file = tmp_path / "pid"
    async with at_terminal(against(f"PIDFILE={pid_file}", http=http)) as terminal:
        await terminal.prompt()
        terminal.process.send_signal(number)
        ended = await terminal.end()

    assert ended.code == 128 + number
    assert "Traceback" not in ended.output
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@requirement("demo:honest")
@TRANSPORTS
async def test_the_demo_fails_when_the_guard_is_patched_out(http: bool):
    ended = await run(against("guard", auto=True, http=http))

    assert ended.code == 1
    assert "FAILED    This does not hold: the subagent is refused with DELEGATED_CALLER. Found: " in ended.output


@requirement("demo:honest")
async def test_a_demo_that_checks_nothing_would_not_notice_that_the_guard_is_patched_out():
    """The counterpart of the test before: it is the demo's own check that turns it red."""
    unchecked = "from steersman.demo.stage import Stage; Stage.check = lambda *claimed: None"

    ended = await run(against("guard", before=unchecked, auto=True))

    assert ended.code == 0, ended.output


@requirement("demo:honest")
@pytest.mark.parametrize(
    ("rule", "claim"),
    [
        ("approval", "a plan that is not approved is KEEP_PLANNING"),
        ("digest", "the approval names the SHA-256 of the plan that main sent"),
        ("plan_mode", "main is in plan mode now"),
        ("answers", "it says what the human said, and nothing else"),
        ("routes", "it is running, so the route is step"),
        ("steps", "one to three are kept, four to twelve never run"),
        ("delivery", "one to three are kept, four to twelve never run"),
        ("interrupts", "the step in flight is stopped"),
        ("keeps", "the message opens a turn of its own"),
        ("last_look", "the turn does not close: the message is read in an extra step"),
        ("closes", "the subagent comes to the end of its work"),
    ],
)
async def test_the_demo_fails_when_another_rule_is_patched_out(rule: str, claim: str):
    impatient = "import steersman.demo.steering_story as story; story.PATIENCE_SECONDS = 3"

    ended = await run(against(rule, before=impatient, auto=True))

    assert ended.code == 1
    assert f"FAILED    This does not hold: {claim}" in ended.output


@requirement("demo:orderly")
@TRANSPORTS
async def test_a_server_that_does_not_start_is_said_with_the_end_of_its_log(http: bool):
    code = f"from steersman.demo import run_demo; raise SystemExit(run_demo(http={http}, server_command=COMMAND))"
    broken = [sys.executable, "-c", "raise SystemExit('no such luck')"]

    ended = await run([sys.executable, "-c", code.replace("COMMAND", repr(broken))])

    assert ended.code == 1
    assert "FAILED    The demo could not go on." in ended.output
    assert "server log: no such luck" in ended.output
