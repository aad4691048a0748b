"""No secret reaches a log line, and a line is one line whatever is in it."""

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.join_token import new_token
from llmgw.core.jsonlog import JsonFormatter, redact
from llmgw.core.secrets import engine_key, mirror_token

CANARY = "c4n4ry0123456789c4n4ry0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"key sk-{CANARY}",
        engine_key(b"x" * 32, "r1"),
        mirror_token(b"x" * 32),
        pytest.param(str(new_token("ab" * 32)), id="join token"),
        f"Authorization: Bearer {CANARY}",
        f"hf_{CANARY}",
        f"postgresql://user:{CANARY}@host/db",
        f"postgres://:{CANARY}@[::1]:5432/db",
        f"host=x password={CANARY} dbname=y",
        f"host=x password='{CANARY} {CANARY}' dbname=y",
        f"https://bucket/x?a=1&X-Amz-Signature={CANARY}&b=2",
        f"GET /x?token={CANARY}",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    shown = redact(f"before {text} after")
    assert "…" in shown
    assert CANARY not in shown
    assert shown.startswith("before ")
    for part in text.replace(".", " ").replace("-", " ").split():
        assert len(part) < 40 or part not in shown


def test_ordinary_text_is_left() -> None:
    for text in ("task-1 of mt-2", "postgresql://host/db", "ask-me-anything", "GET /v1/models?limit=3"):
        assert redact(text) == text


@settings(max_examples=200)
@given(st.text(max_size=80), st.text(max_size=20))
def test_any_record_is_one_json_line(text: str, extra: str) -> None:
    record = logging.makeLogRecord({"msg": text, "levelname": "INFO", "name": "x", "replica": extra})
    line = JsonFormatter("server").format(record)
    assert "\n" not in line
    assert line.isascii()
    assert json.loads(line)["process"] == "server"
    assert set(json.loads(line)) == {"ts", "level", "process", "pid", "logger", "msg", "replica"}


def test_wrong_arguments_exceptions_and_size() -> None:
    record = logging.makeLogRecord({"msg": "%d", "args": ("x",)})
    assert "do not fit" in json.loads(JsonFormatter("x").format(record))["msg"]
    try:
        raise ValueError(f"sk-{CANARY}")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "y" * 100_000, "exc_info": (type(error), error, error.__traceback__)})
    line = json.loads(JsonFormatter("x").format(record))
    assert "ValueError: sk-…" in line["exc"]
    assert len(line["msg"]) < 20_000
