"""Logs are JSON lines: one event a line whatever is in it, no secrets, and never a reason for a process to fail."""

import io
import json
import logging
import logging.handlers
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_LOG_BYTES = 10 * 1024 * 1024
"""A file is rotated at this size."""
KEPT_LOGS = 5
"""Rotated files kept beside the one being written."""
MAX_TEXT_CHARS = 16 * 1024
"""Longest message, field or traceback that is logged whole."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRETS = (
    re.compile(r"\b((?:sk|ek|mt)-)[A-Za-z0-9_\-]{8,}"),
    re.compile(r"\b(llmgw-join\.)[A-Za-z0-9_\-.]{8,}"),
    re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9_\-.~+/=]{8,}"),
    re.compile(r"\b(hf_)[A-Za-z0-9]{8,}"),
)
_URL_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.\-]{1,20}://[^\s/:@]*):[^\s/@]+@")
_SIGNED_QUERY = re.compile(r"(?i)([?&](?:x-amz-signature|signature|sig|token|key|api[_-]?key|password)=)[^&\s\"']+")
_DSN_PASSWORD = re.compile(r"(?i)\b(password\s*=\s*)('[^']*'|\S+)")


def redact(text: str) -> str:
    """`text` with keys, tokens, passwords in URLs and signatures replaced by `…`."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1…", text)
    text = _URL_PASSWORD.sub(r"\1:…@", text)
    text = _DSN_PASSWORD.sub(r"\1…", text)
    return _SIGNED_QUERY.sub(r"\1…", text)


class JsonFormatter(logging.Formatter):
    """A record as one JSON line: ts, level, process, pid, logger, msg, the fields given as `extra`, exc."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One line, ASCII, without a newline in it."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = f"{record.msg!r} (arguments do not fit)"
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "msg": _text(message),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and key not in line:
                line[key] = value if isinstance(value, int | float | bool | None) else _text(str(value))
        if record.exc_info and record.exc_info[0] is not None:
            line["exc"] = _text(self.formatException(record.exc_info))
        return json.dumps(line)


def _text(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + f"… ({len(text)} characters)"
    return redact(text)


class PrivateRotatingHandler(logging.handlers.RotatingFileHandler):
    """Rotates by size, files of mode 0600. What cannot be written is dropped: a full disk stops no process."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return open(descriptor, "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or drop it."""
        try:
            super().emit(record)
        except (OSError, ValueError):
            self._forget_stream()

    def handleError(self, record: logging.LogRecord) -> None:
        """Called for a failed write: the next record opens the file again, once there is room."""
        self._forget_stream()

    def _forget_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass


class _QuietStderr(logging.StreamHandler[Any]):
    """Lines to stderr; a closed terminal is nothing to report."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the record."""


def setup(path: Path | None, *, process: str, level: int | str = logging.INFO) -> logging.Handler:
    """Send all logging of this process to `path` as JSON lines, or to stderr when there is none.

    Replaces the handlers of an earlier call. The directory is made (0700) when it is missing; raises OSError when it
    cannot be, or when the file cannot be opened at all.
    """
    handler: logging.Handler
    if path is None:
        handler = _QuietStderr(sys.stderr)
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = PrivateRotatingHandler(path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8")
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, PrivateRotatingHandler | _QuietStderr):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.captureWarnings(True)
    return handler
