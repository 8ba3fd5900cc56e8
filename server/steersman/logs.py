"""Logging: JSON lines on stderr or in a file, which never hold what an agent or a human wrote."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, cast

from steersman.settings import LogLevel

_OURS: Final = "steersman"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


MAX_BYTES: Final = 1024 * 1024
KEPT_FILES: Final = 3
"""How large a log file becomes, and how many older ones are kept beside it."""


def configure(level: LogLevel, file: Path | None = None) -> None:
    """Send every log record of this process to stderr, one JSON object a line.

    Args:
        level: the least that is shown of our own. Of other packages only warnings and worse are, unless it is `debug`.
        file: takes the place of stderr, and is moved aside once it is large. It must be writable.
    """
    handler = logging.StreamHandler(sys.stderr) if file is None else _RotatedFile(file)
    handler.setFormatter(JsonLines())
    ours: int = getattr(logging, level.upper())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(ours if level == "debug" else max(ours, logging.WARNING))
    logging.getLogger(_OURS).setLevel(ours)


class _RotatedFile(RotatingFileHandler):
    """A log file that is the process's stderr as well, for what is not logged: the interpreter's own last words."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        os.dup2(stream.fileno(), 2)
        return stream


class JsonLines(logging.Formatter):
    """One record as one JSON object: time, level, logger, message, and the fields given as `extra`.

    Of other packages only the first line of the bare message template is shown: what they fill into it, and the text
    of an exception, may quote a question or an answer. Of an exception its type and frames are shown.
    """

    def format(self, record: logging.LogRecord) -> str:
        ours = record.name.partition(".")[0] == _OURS
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage() if ours else _template(record),
        }
        if ours:
            line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True, default=lambda value: type(value).__name__)


def describe(fault: BaseException) -> Mapping[str, object]:
    """An exception as log fields: its type and where it passed, never its text."""
    frames = traceback.extract_tb(fault.__traceback__)
    fields: dict[str, object] = {
        "fault": type(fault).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if isinstance(fault, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", fault)
        fields["inner"] = [describe(each) for each in group.exceptions]
    return fields


def _template(record: logging.LogRecord) -> str:
    return record.msg.partition("\n")[0] if isinstance(record.msg, str) else type(record.msg).__name__
