"""Log lines on stderr: JSON, and without a word of what an agent or a human wrote."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from typing import Any

import pytest

from steersman.logs import configure
from steersman.settings import LogLevel
from tests.requirements import requirement

SECRET = "the human's answer"


@pytest.fixture(autouse=True)
def restored() -> Generator[None]:
    root, ours = logging.getLogger(), logging.getLogger("steersman")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def fail() -> None:
    raise ValueError(SECRET)


@requirement("serving:logs")
def test_a_record_of_ours_is_one_object_with_its_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("steersman.serving").info("listening on %s", "a\nb", extra={"port": 1, "seen": {2}})
    [line] = lines(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "steersman.serving",
        "message": "listening on a\nb",
        "port": 1,
        "seen": "set",
    }


@requirement("serving:logs")
@pytest.mark.parametrize("name", ["steersman.server", "mcp.server", "asyncio"])
def test_of_an_exception_only_type_and_frames_are_shown(capsys: pytest.CaptureFixture[str], name: str) -> None:
    configure("debug")
    try:
        fail()
    except ValueError as fault:
        group = ExceptionGroup(SECRET, [fault])
        logging.getLogger(name).error("failed", exc_info=fault)
        logging.getLogger(name).error("failed", exc_info=group)
    shown = capsys.readouterr().err
    plain, grouped = lines(shown)
    assert plain["fault"] == "ValueError"
    assert plain["at"][-1].endswith(" fail")
    assert (grouped["fault"], grouped["inner"][0]["fault"]) == ("ExceptionGroup", "ValueError")
    assert SECRET not in shown


@requirement("serving:logs")
def test_what_other_packages_fill_into_their_messages_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug")
    logger = logging.getLogger("mcp.server")
    logger.debug("received %s", SECRET)
    logger.warning(ValueError(SECRET))
    logger.error("Task exception was never retrieved\nfuture: exception=ValueError(%r)", SECRET, extra={"x": SECRET})
    logger.error(f"Task exception was never retrieved\nfuture: exception=ValueError({SECRET!r})")
    shown = capsys.readouterr().err
    assert SECRET not in shown
    assert [line["message"] for line in lines(shown)] == [
        "received %s",
        "ValueError",
        "Task exception was never retrieved",
        "Task exception was never retrieved",
    ]


@requirement("serving:logs")
@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [
        ("debug", ["debug", "info", "warning", "error"], ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"], ["warning", "error"]),
        ("warning", ["warning", "error"], ["warning", "error"]),
        ("error", ["error"], ["error"]),
    ],
)
def test_other_packages_are_quiet_below_warning_unless_debugging(
    capsys: pytest.CaptureFixture[str], level: LogLevel, ours: list[str], others: list[str]
) -> None:
    configure(level)
    for name in ("steersman.server", "uvicorn.error"):
        for each in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), each)("said")
    shown = [(line["logger"], line["level"]) for line in lines(capsys.readouterr().err)]
    assert shown == [("steersman.server", each) for each in ours] + [("uvicorn.error", each) for each in others]
