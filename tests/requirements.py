"""Every behaviour that must hold, once, with its source; `test_requirements.py` holds tests and this list together."""

from __future__ import annotations

import pytest

from tests.requirement_type import Requirement
from tests.requirements_contract import CONTRACT


def requirement(*names: str) -> pytest.MarkDecorator:
    """Mark a test as showing these behaviours."""
    unknown = [name for name in names if name not in REQUIREMENTS]
    assert not unknown, f"no such requirement: {unknown}"
    return pytest.mark.requirement(*names)


REQUIREMENTS: dict[str, Requirement] = {
    # --- the guard ---
    "guard:child-refused": Requirement(
        "A live agent that another agent owns is refused with DELEGATED_CALLER: no provider, no card, no record.",
        "case 1; design 8",
    ),
    "guard:many-children": Requirement(
        "Thirty-five children that ask at once are all refused at once, and their root can still ask.", "case 2"
    ),
    "guard:chains": Requirement(
        "At every depth below a root both tools refuse with the same code and the same text.", "case 3; design 5"
    ),
    "guard:stable-text": Requirement("The refusal is byte-identical each time.", "case 4; design 5"),
    "guard:not-configurable": Requirement("No setting lets an owned agent through.", "cases 6 and 8"),
    "guard:runtime-ownership": Requirement(
        "The live activation's owner decides, not the header: a live child of depth 0 is refused, an agent of depth 1 "
        "that entered without an owner may ask.",
        "case 7; design 7",
    ),
    "guard:stale-object": Requirement(
        "An activation that is not the live one of its id is CALLER_NOT_LIVE, and so is everybody without a registry.",
        "case 7; design 5",
    ),
    "guard:orphan-stays-owned": Requirement(
        "A child whose owner exited stays live and stays refused.", "case 7; design 7"
    ),
    "provider:none": Requirement(
        "Without a provider a question fails with NO_PROVIDER at once; once one registers the next question works.",
        "case 5; design 5",
    ),
    # --- callers, realms, registry ---
    "caller:forged-credential": Requirement(
        "A credential that is present and names nobody makes a dead caller, never the connection's root.",
        "case 9; design 6",
    ),
    "caller:ended-credential": Requirement("The credential of an activation that ended is dead.", "case 9; design 6"),
    "caller:forgotten-credential": Requirement(
        "While entered agents live on a connection or token, a call without identity there is a dead caller.",
        "case 9; design 6",
    ),
    "caller:root-on-first-use": Requirement("A host that tells nothing is one root.", "design 6 and 10"),
    "caller:connection-root-ends": Requirement(
        "What lives on a stream ends with it; what a token's host entered has a lease instead.", "design 6 and 7"
    ),
    "caller:arguments-never-decide": Requirement(
        "Arguments that claim an identity, an answer or an approval are refused and change nothing.", "case 10"
    ),
    "caller:credential-not-session": Requirement(
        "One credential over two connections is one agent; two credentials over one connection are two.", "case 11"
    ),
    "caller:header": Requirement(
        "Over HTTP the header Steersman-Agent names an agent; _meta goes before it.", "design 6"
    ),
    "caller:nobody-steers": Requirement("A dead caller steers nobody.", "design 5"),
    "caller:codex": Requirement(
        "With the Codex profile the thread in _meta calls: a root if it is its session, else owned by its parent; what "
        "cannot be read is a dead caller.",
        "design 6; hosts: Codex",
    ),
    "caller:profile-off": Requirement(
        "Without the profile a host's own metadata decides nothing, and no host enters ids of a profile's namespace.",
        "design 6",
    ),
    "realm:nothing-crosses": Requirement(
        "Ids, credentials and lists of one realm are worth nothing in another.", "design 1 and 6"
    ),
    "realm:token-root": Requirement(
        "Tokens of one principal share a realm, and each has a root of its own.", "design 6"
    ),
    "registry:re-entry": Requirement("An owner that enters again has its children back.", "case 12; design 7"),
    "registry:resume-key": Requirement(
        "A known id is entered with its resume key only, supersede or not; otherwise the live one is untouched.",
        "case 12; design 7",
    ),
    "registry:lease": Requirement(
        "An activation entered over HTTP lives 90 s beyond its last open request or open question, then is dead.",
        "design 7",
    ),
    "registry:one-shot": Requirement("A one-shot agent that ended is not entered again.", "design 7"),
    "registry:live-needs-supersede": Requirement("A live id is entered again only to supersede it.", "design 7"),
    "registry:no-cycles": Requirement("No agent comes to own itself, at once or through others.", "design 7"),
    "registry:model": Requirement(
        "Under any order of entries, exits, supersedes and lapses: one live activation for each id, counts that hold.",
        "design 7",
    ),
    "registry:own-key": Requirement(
        "A host may bring its own resume key to a first entry, so that a lost reply loses nothing.", "design 7"
    ),
    "steer:unknown-subagent": Requirement(
        "Whatever is no direct subagent gets one code, text and shape, with the caller's own direct subagents.",
        "case 13; design 5",
    ),
    # --- steering ---
    "steer:routes": Requirement(
        "The route follows from mode, liveness and status alone, and the result names the one taken.", "design 9"
    ),
    "steer:before-effect": Requirement(
        "Who may be steered is decided before anything has an effect: direct subagents, by header and by life.",
        "design 9; cases 13 and 36",
    ),
    "steer:source": Requirement("A delivered message carries who sent it, and as what.", "design 9"),
    "steer:finished": Requirement(
        "A finished one-shot subagent is SUBAGENT_FINISHED, and nothing is started.", "case 35; design 5"
    ),
    "steer:closing": Requirement(
        "A one-shot subagent whose turn has closed with nothing left is SUBAGENT_CLOSING until it opens another.",
        "design 5; issue 3",
    ),
    "steer:order": Requirement(
        "Messages are read in the order accepted, by list: the unconfirmed, the steps, one turn.", "case 32; design 9"
    ),
    "steer:last-look": Requirement(
        "What is accepted before a turn closes is read in it; later it opens the next.", "case 30; design 9"
    ),
    "steer:retry": Requirement(
        "A retried call has one effect and the first result; its id with other arguments is refused.",
        "case 34; design 9",
    ),
    "steer:missed": Requirement(
        "What can no longer be delivered is missed, and its sender finds a notice, which wakes nobody.",
        "cases 31 and 33; design 9",
    ),
    "steer:interrupt": Requirement(
        "An interrupt stops the current turn of a direct or deeper subagent, and keeps its mailbox.", "design 10"
    ),
    "steer:readers": Requirement("Nothing is accepted for an agent that no host can read for.", "design 9"),
    "steer:limits": Requirement(
        "Messages, mailboxes and replies have limits, and whatever was accepted can arrive.", "design 5; style: limits"
    ),
    # --- turns ---
    "turn:boundaries": Requirement("A turn opens, passes its steps and closes, and each is on record.", "design 10"),
    "turn:stale": Requirement(
        "What does not fit the turn changes nothing, brings no messages and tells where it stands.", "design 10"
    ),
    "turn:lost-reply": Requirement("What a lost reply brought comes again, under its number.", "design 9; issue 3"),
    "turn:confirmed": Requirement(
        "The highest number ever named counts, and only one that was handed out.", "design 9 and 10"
    ),
    "turn:waits": Requirement(
        "idle waits, up to a minute, until something opens a turn; a notice does not; a server that ends lets go.",
        "design 9 and 10",
    ),
    "turn:superseded": Requirement(
        "A replaced activation's poll ends before the new one sees anything, and its open turn is closed.",
        "design 10; issue 3",
    ),
    "turn:plan-mode": Requirement(
        "A switch of plan mode during a turn takes effect at its next boundary.", "design 8 and 10"
    ),
    "turn:wall-clock": Requirement("A wall clock that jumps changes what is shown and nothing else.", "issue 3"),
    "watch:state": Requirement(
        "watch returns the state once it is not the one seen: interrupt, messages, whom to resume.", "design 10"
    ),
    "watch:lease": Requirement("An open poll keeps a lease; messages outlive a lease that runs out.", "design 7 and 9"),
    "law:steering": Requirement(
        "Whatever order things happen in: no accepted message is lost without notice, none is given twice by one loop, "
        "order is kept, no agent is idle with something to read, and the state is a fold of the journal.",
        "design 9; issue 3",
    ),
    # --- the library for hosts ---
    "loop:steps": Requirement(
        "TurnLoop gives each message to the next step, an extra one if need be, and runs a turn for what opens one.",
        "design 10; issue 3",
    ),
    "loop:interrupts": Requirement(
        "TurnLoop cancels the step in flight of an interrupted turn, and closes that turn.", "design 10; issue 3"
    ),
    "loop:ends": Requirement(
        "However a turn ends, what waits is read later or reported missed, and the agent exits.", "case 31; issue 3"
    ),
    "loop:faults": Requirement(
        "Requests and replies that are lost or repeated change nothing of what the step function sees.",
        "design 9; issue 3",
    ),
    "loop:re-entry": Requirement(
        "A lapsed agent is entered again and drops what it has seen; a replaced or ended one is not.",
        "design 10; issue 3",
    ),
    "loop:resume": Requirement("TurnLoop tells its host which stored subagent to resume.", "design 9 and 10"),
    "connect:ways": Requirement("The same host runs in memory, over pipes and over HTTP.", "design 10; issue 3"),
    "connect:ends": Requirement(
        "Agents exit on every way out of a connection, and what was raised comes out as it is.", "design 10; issue 3"
    ),
    "connect:cut": Requirement(
        "A connection that is cut costs its call a repetition and nothing else.", "design 9; issue 3"
    ),
    "connect:many": Requirement("A host may have as many agents that wait as it likes.", "issue 3"),
    "loop:lease": Requirement("An agent lives as long as its block.", "design 7 and 10"),
    "http:bearer": Requirement(
        "HTTP serves nobody without a token it knows; a revoked token stops at once.", "design 6; MCP authorization"
    ),
    "host:shapes": Requirement(
        "Host parameters of a wrong shape are -32602; refusals are 4001 with name, code and message.", "design 10"
    ),
    "host:list": Requirement("agents/list shows the realm's agents as a tree with status and what waits.", "design 10"),
    "host:advertised": Requirement("The host methods are advertised as a capability in both eras.", "design 10"),
    # --- while the human thinks ---
    "ask:no-deadline": Requirement(
        "A question open for 45 minutes is still open and answered normally; no deadline unless configured.", "case 14"
    ),
    "ask:timeout": Requirement("With a configured deadline an unanswered question ends as ASK_TIMED_OUT.", "design 5"),
    "ask:progress": Requirement("A waiting call sends progress every 10 s to a client that asked for it.", "design 8"),
    "ask:withdrawn": Requirement(
        "A cancelled call, a closed stream or a lost host withdraws its own question and touches no other.", "case 15"
    ),
    "ask:cancel-after-answer": Requirement("A cancel after the answer leaves the answer standing.", "case 15"),
    "ask:stray-cancel": Requirement("A cancel for an unknown or finished call is ignored.", "case 15"),
    "ask:not-blocking": Requirement("While a question is open everything else is served at once.", "case 17"),
    "ask:slow-modern": Requirement("A modern client may answer after 11 minutes.", "case 18"),
    "ask:lost-reply": Requirement("The same answer sent again by the same caller gets the same result.", "case 18"),
    "ask:bound-handle": Requirement(
        "A handle with another answer, other arguments, another caller, or answers without one: ANSWER_INVALID.",
        "case 18; design 8",
    ),
    "ask:agent-ended": Requirement("When its agent ends, an open question is withdrawn.", "design 5"),
    "ask:joins": Requirement("A call retried under its host's id joins its own card, or gets its outcome.", "case 23"),
    "ask:key-other-arguments": Requirement("One call id with other arguments is INVALID_ARGUMENTS.", "design 9"),
    "ask:open-call-limit": Requirement("An agent has at most 256 open calls.", "design 5"),
    "ask:server-goes": Requirement("When the server goes away open questions end as ASK_ABORTED.", "design 5"),
    # --- whose answer, and is it one ---
    "answer:own": Requirement("Two agents that ask the same at once each get their own answer.", "case 19"),
    "answer:order": Requirement("Questions reach the human in order of arrival; one dismissed stops none.", "case 20"),
    "answer:checked": Requirement(
        "A provider that brings back anything but an answer to what was asked gives ANSWER_INVALID.", "case 24"
    ),
    "answer:decline-cancel": Requirement(
        "accept of nothing, decline and cancel are ANSWER_INVALID, ASK_DECLINED and ASK_CANCELLED.", "case 25"
    ),
    "answer:next-provider": Requirement("A client that cannot show forms leaves the next provider to ask.", "case 25"),
    "answer:never-made-up": Requirement("No headless or automatic way makes an answer up.", "case 8"),
    "answer:shapes": Requirement("Choices, skips and own words come back in the frozen shape.", "design 4 and 8"),
    "intent:checked": Requirement("A review without its approving option or its plan is BAD_INTENT.", "design 5"),
    # --- plans ---
    "plan:prompt": Requirement(
        "The prompt plan enters plan mode, for a live agent only, and never leaves it.", "design 8"
    ),
    "plan:set": Requirement("The host turns plan mode on and off for one agent.", "design 8 and 10"),
    "plan:approved": Requirement(
        "Approve alone approves, names digest and review, and ends plan mode.", "design 8; cases 26 and 29"
    ),
    "plan:not-approved": Requirement(
        "Anything else than Approve alone leaves plan mode on, with the human's words unchanged.", "case 26"
    ),
    "plan:invalid": Requirement("An empty plan is INVALID_PLAN before the human is asked.", "case 27"),
    "plan:not-in-plan-mode": Requirement("Outside plan mode there is nothing to review.", "design 5"),
    "plan:interrupted": Requirement("An interrupted review leaves plan mode on and the next review works.", "case 28"),
    "plan:two-at-once": Requirement("Two plans under review at once each get their own digest.", "case 29"),
    "plan:always": Requirement("With --plan-mode always every root stays in plan mode, also approved.", "design 8"),
    "plan:lost-reply": Requirement("An approval whose reply was lost is given again, once in effect.", "case 18"),
    # --- the whole ---
    "story:delegation": Requirement(
        "A parent delegates, the child's question is refused, comes back in its result, and the parent goes on.",
        "issue 2",
    ),
    "errors:all": Requirement("Every code that a tool call can reach is reached over the wire.", "design 5"),
    "errors:internal": Requirement(
        "A fault of ours is INTERNAL_ERROR with a reference that stands in the log, and nothing of the exception.",
        "design 5",
    ),
    "errors:unknown-tool": Requirement("An unknown tool is an orderly JSON-RPC error.", "MCP: tools"),
    "docs:run": Requirement("The code in the documentation runs against a real server.", "style: tested docs"),
    "demo:runs": Requirement(
        "The demo runs by itself over stdio and HTTP, and everything it claims holds.", "issue 2, point 8"
    ),
    "demo:person": Requirement("The person at the terminal answers the demo's questions.", "issue 2, point 8"),
    "demo:honest": Requirement("With a rule patched out of its server the demo exits non-zero.", "issue 2, point 8"),
    "demo:orderly": Requirement("However the demo ends, its server is gone.", "issue 2, point 8"),
    "serving:lines": Requirement(
        "On stdio every line is answered, and a host's answer that cannot be read ends its call.", "case 45"
    ),
    "ask:memory": Requirement(
        "What is remembered of cards is bounded in number and in text; a settled one holds neither.", "style: limits"
    ),
    "serving:logs": Requirement(
        "Logs are JSON lines on stderr that hold no answer, no credential and no text of an exception.", "standards"
    ),
    "serving:tokens": Requirement("Tokens are made, listed, revoked and kept safely.", "issue 2, point 7"),
    "serving:signals": Requirement(
        "SIGINT and SIGTERM end a server cleanly, with its questions withdrawn.", "issue 2, point 7"
    ),
    "serving:connections": Requirement(
        "A server over HTTP may hold a connection for each agent that waits.", "issue 3"
    ),
    "serving:guard": Requirement(
        "Over HTTP a client that leaves ends its call, and one request id is in flight once.", "design 8; mcp-sdk"
    ),
    "serving:command": Requirement(
        "The command says what it does, and what is wrong with what it was given.", "issue 2, point 7"
    ),
    "suite:can-fail": Requirement("With a rule patched out the suite goes red.", "issue 2"),
    "suite:manifest": Requirement("Each test shows a behaviour of this list, and each of them has a test.", "issue 2"),
    # --- contract, arguments, texts, forms ---
    **CONTRACT,
    # --- the terminal ---
    "terminal:answer": Requirement(
        "`steersman answer` shows each card as it comes and takes labels, own words and skips.", "issue 4; design 11"
    ),
    "terminal:provider": Requirement(
        "While a terminal is attended, a host without a dialog of its own can ask.", "issue 4; case 25"
    ),
    "terminal:plan": Requirement(
        "A plan is shown as its whole source, and nothing but the one choice approves it.", "cases 26 and 43"
    ),
    "terminal:refuse": Requirement("A card may be declined, dismissed or put off.", "design 5"),
    "terminal:elsewhere": Requirement(
        "One answer wins, the others read that it was answered elsewhere, and what they were typing answers nothing "
        "else.",
        "case 21",
    ),
    "terminal:late": Requirement(
        "An answer that nobody waits for any more is a message to the agent, and the human is told.", "case 16"
    ),
    "terminal:text": Requirement(
        "What an agent wrote is shown as text: no control, no link, no markup of the terminal's.", "case 42"
    ),
    "terminal:scripts": Requirement("Flags and JSON do for scripts what the prompts do.", "issue 4"),
    "terminal:agents": Requirement("`steersman agents` shows the tree, `send` speaks to any of it.", "issue 4"),
    "terminal:history": Requirement("`steersman history` tells what happened, `forget` deletes it.", "issue 4"),
    "terminal:server": Requirement("`status` and `stop` see to the server that runs, and start none.", "issue 4"),
    # --- the shared server ---
    "journal:rebuilt": Requirement("What a server knows is rebuilt whole from its journal.", "issue 4; design 12"),
    "journal:durable": Requirement(
        "What is acknowledged is on the disk; commits that arrive together share one transaction.", "issue 4; design 12"
    ),
    "journal:refuses": Requirement(
        "Once a fact cannot be stored, it and all that follow are refused, and nobody is told otherwise.",
        "issue 4; design 12",
    ),
    "journal:file": Requirement(
        "The journal's file is its user's alone; one that cannot be used is named with a remedy and left as it is.",
        "issue 4; design 12",
    ),
    "journal:history": Requirement("The past is shown without secrets.", "issue 4; design 12"),
    "journal:forget": Requirement(
        "What is forgotten is gone from the disk; what waits and who lives stays.", "issue 4; design 12"
    ),
    "shared:one-server": Requirement("Pipes that start at once meet in one server.", "issue 4; design 2"),
    "shared:detached": Requirement(
        "The server is nobody's child, outlives its pipes, keeps only what it needs of the environment, and its files "
        "are its user's alone.",
        "issue 4",
    ),
    "shared:crash": Requirement(
        "When the server is killed its pipes join the next one, with the same agents under the same credentials.",
        "issue 4; design 2 and 7",
    ),
    "shared:orphaned": Requirement(
        "What a killed server had open is listed as orphaned with its whole text, and nothing answers it.", "case 22"
    ),
    "shared:unknown-outcome": Requirement(
        "A call that a server took and did not answer is told that nobody knows what became of it.", "issue 4"
    ),
    "shared:mailbox": Requirement("Mailboxes and receipts outlive the server.", "issue 4; cases 34 and 37"),
    "shared:handles": Requirement(
        "A modern client's handle is good after a restart, and what was used stays used.", "case 18"
    ),
    "shared:idle": Requirement("A server that nobody needs ends, and leaves no socket.", "issue 4"),
    "shared:newer": Requirement("A newer pipe has an older server end once nothing is open, and says so.", "issue 4"),
    "shared:ten-pipes": Requirement(
        "Of ten pipes of two hosts one is killed; the others steer on across processes.", "issue 4"
    ),
    "shared:unusable": Requirement(
        "A journal that cannot be used is named with the remedy, and is left as it is.", "issue 4"
    ),
    "shared:full-disk": Requirement("What could not be stored is never acknowledged.", "issue 4"),
    "shared:peer": Requirement("No other user's process is spoken with over the socket.", "issue 4; design 2"),
    "shared:http": Requirement("Pipes and HTTP meet in one server.", "issue 4; design 2"),
    "shared:stale": Requirement("What a dead server left is in nobody's way.", "issue 4"),
}
