"""The manifest's entries for the contract, arguments, shown text and forms."""

from __future__ import annotations

from tests.requirement_type import Requirement

CONTRACT: dict[str, Requirement] = {
    # --- the frozen files ---
    "contract:digest": Requirement(
        "The digest of all files of the contract is the released one, and every file of the folder counts.", "design 4"
    ),
    "contract:input-words": Requirement(
        "Input schemas use only the words that every provider takes; objects and arrays are closed.",
        "case 39; design 4",
    ),
    "contract:output-shape": Requirement(
        "An output schema is an object, success and error told apart by oneOf on required, with the one error object.",
        "design 4",
    ),
    "contract:table": Requirement(
        "Inputs, results, annotations and _meta are those of the design's table.", "design 4"
    ),
    "contract:errors": Requirement(
        "The codes of the code and of errors.json are the same, and each name is an exception class.", "design 4 and 5"
    ),
    "contract:words": Requirement(
        "Descriptions are short, name no host, and advise neither to call again nor to wait longer nor to guess; "
        "so do the instructions, the prompt and every error.",
        "design 4 and 5",
    ),
    "contract:stable-list": Requirement(
        "tools/list is the contract, each time, for a root and a child, in plan mode and out of it, in each era.",
        "case 38; design 4",
    ),
    "contract:revisions": Requirement("tools/list is the contract in every revision of the protocol.", "case 38"),
    "contract:processes": Requirement(
        "Two processes, and any order of hashing, send tools/list in the same bytes.", "case 38"
    ),
    "contract:assert": Requirement(
        "assert_contract takes what a client lists, and refuses a changed word, another order, a missing tool, "
        "an added property.",
        "design 4",
    ),
    "contract:host-methods": Requirement(
        "The host methods' models and results are what host.json says.", "design 4 and 10"
    ),
    "contract:results": Requirement("Every result, good or bad, is what its output schema says.", "design 4"),
    # --- arguments ---
    "arguments:schema-and-model": Requirement(
        "The frozen input schema and the model that reads it accept the same values.", "issue 2; design 4"
    ),
    "arguments:always-a-tool-error": Requirement(
        "Whatever the arguments are, they are read or refused with INVALID_ARGUMENTS or LIMIT_EXCEEDED, never with "
        "anything else, and the server serves on.",
        "case 45; design 4",
    ),
    "arguments:limits": Requirement(
        "Each limit is passed when met exactly, and one more is LIMIT_EXCEEDED before schema and human.", "design 5"
    ),
    "arguments:leniencies": Requirement(
        "Read all the same: a JSON text of a list, multiSelect, questions without id.", "case 40; design 4"
    ),
    "arguments:texts": Requirement(
        "A refusal names the path, what was found and what is allowed, in ASCII and cut short.",
        "cases 10, 40; design 4",
    ),
    "arguments:unicode": Requirement(
        "A lone surrogate in a key or a value is INVALID_ARGUMENTS, wherever it stands.", "design 4"
    ),
    "arguments:labels": Requirement(
        "Labels that look the same once shown, that read Other or Skip, or that show nothing are refused.", "design 4"
    ),
    # --- text ---
    "text:visible": Requirement(
        "Control, bidi and zero-width characters are spelled out wherever a form shows an agent's text, and the answer "
        "is the original label.",
        "case 42; design 8",
    ),
    "text:scripts": Requirement(
        "CJK, Arabic, Persian, emoji families and combining marks are shown unchanged and come back byte for byte, "
        "in raw UTF-8.",
        "case 44",
    ),
    "text:data": Requirement(
        "A question that holds our own markers, JSON, tags or an approval is text and changes nothing.", "case 41"
    ),
    # --- forms ---
    "forms:dialects": Requirement(
        "A form is spelled as the negotiated revision spells titled enums and multiple choice, every choice required.",
        "design 8",
    ),
    "forms:reading": Requirement(
        "An empty form, Other without words, nothing chosen, Skip with anything else, an unknown field and a wrong "
        "type are ANSWER_INVALID.",
        "cases 24 and 25; design 8",
    ),
    "forms:any-filling": Requirement(
        "Any filling of any form is ANSWER_INVALID or gives answers that pass the answer check unchanged.",
        "cases 24 and 25; design 8",
    ),
}
