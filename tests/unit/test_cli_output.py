"""Tables align, fit the terminal and never carry a control character; JSON stays the same document."""

import errno
import io
import json
import os
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.api.audit_words import target_called
from llmgw.api.client import AdminClient
from llmgw.api.problems import Usage
from llmgw.api.types import AuditEntry, KeyCreate, KeyCreated
from llmgw.cli import format as fmt
from llmgw.cli.context import Context
from llmgw.cli.groups.audit import _change, parse_since
from llmgw.cli.groups.keys import create
from llmgw.cli.groups.settings import json_value
from llmgw.cli.output import Output
from llmgw.core.text import display_width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_everything_aligned() -> None:
    out = io.StringIO()
    Output(json=False, out=out).table(["A", "B"], [["x" * 300, "1"], ["モデル", "\x1b]0;t\x07"]], empty="none")
    lines = out.getvalue().splitlines()
    assert [display_width(line) for line in lines[:2]] == [303, 303]
    assert lines[2].endswith("␛]0;t␇")
    assert lines[2].startswith("モデル ")


def test_a_terminal_gets_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    Output(json=False, out=out).table(["NAME", "MESSAGE"], [["qwen", "word " * 40]], empty="none")
    assert max(display_width(line) for line in out.getvalue().splitlines()) == 40
    assert "…" in out.getvalue()


@settings(max_examples=60)
@given(st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), min_size=1, max_size=5), st.integers(40, 120))
def test_any_table_fits(rows: list[list[str]], columns: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        out = Terminal()
        Output(json=False, out=out).table(["A", "B", "C"], rows, empty="none")
    lines = out.getvalue().split("\n")
    assert len(lines) == len(rows) + 2
    assert all(display_width(line) <= columns for line in lines)


def test_shares_of_a_big_machine_stay_plain_figures() -> None:
    assert fmt.share(6_100_000_000, 16_000_000_000) == "6.1/16 GB"
    assert fmt.share(4_000_000_000, 1_099_511_627_776) == "4/1,100 GB"


def test_nothing_is_a_sentence_on_stderr() -> None:
    out, err = io.StringIO(), io.StringIO()
    Output(json=False, out=out, err=err).table(["A"], [], empty="there is none")
    assert (out.getvalue(), err.getvalue()) == ("", "there is none\n")


@settings(max_examples=100)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_json_is_the_same_document_without_raw_controls(text: str) -> None:
    out = io.StringIO()
    Output(json=True, out=out).document({"x": text})
    assert json.loads(out.getvalue()) == {"x": text}
    assert not any("\x7f" <= char <= "\x9f" or char in "\u202e\u2028" for char in out.getvalue())


def test_figures() -> None:
    assert [fmt.size(n) for n in (None, 0, 999, 98_000_000, 188_400_000_000)] == [
        "-",
        "0 B",
        "999 B",
        "98 MB",
        "188 GB",
    ]
    assert [fmt.duration(s) for s in (None, 0.4, 119, 120, 7300, 180000)] == ["-", "0s", "119s", "2m", "2h", "2d"]
    assert fmt.when(datetime(2030, 1, 1, 12, tzinfo=UTC)) == "2030-01-01 12:00:00"


def test_since() -> None:
    now = datetime(2030, 1, 2, tzinfo=UTC)
    assert parse_since("1h", now=now) == now - timedelta(hours=1)
    assert parse_since("2030-01-01T00:00:00+01:00", now=now) == datetime(2029, 12, 31, 23, tzinfo=UTC)
    for text in ("", "h", "yesterday", "-1h", "1y"):
        with pytest.raises(Usage, match="--since"):
            parse_since(text, now=now)


def test_changes_read_as_differences() -> None:
    def entry(before: object, after: object) -> AuditEntry:
        return AuditEntry(
            id=1, at=datetime(2030, 1, 1, tzinfo=UTC), actor="a", action="b", target="c", before=before, after=after
        )

    assert _change(entry({"a": 1, "b": 2}, {"a": 1, "b": 3})) == "b: 2 → 3"
    assert _change(entry(None, {"a": 1})) == 'new {"a":1}'
    assert _change(entry(2.0, 3.5)) == "2.0 → 3.5"
    assert _change(entry("x", None)) == '"x" → gone'
    assert _change(entry(None, None)) == ""


def test_a_key_in_the_audit_has_its_name_beside_its_id() -> None:
    def called(action: str, before: object, after: object) -> str:
        at = datetime(2030, 1, 1, tzinfo=UTC)
        return target_called(
            AuditEntry(id=1, at=at, actor="a", action=action, target="key-1", before=before, after=after)
        )

    assert called("key.limits", {"name": "old"}, {"name": "ci"}) == "key-1 (ci)"
    assert called("key.revoke", {"name": "ci"}, None) == "key-1 (ci)"
    assert called("key.create", None, ["no document"]) == "key-1"
    assert called("team.create", None, {"name": "blue"}) == "key-1", "only keys are known by an id"


@pytest.mark.parametrize(
    ("text", "value"),
    [("30", 30), ("true", True), ("plain words", "plain words"), ('"30"', "30"), ("[1", "[1"), ("", "")],
)
def test_values_of_settings(text: str, value: object) -> None:
    assert msgspec.json.decode(json_value(text)) == value


class Full(io.StringIO):
    """A stream that nothing more fits into."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class MakesKeys:
    """A client of a cluster with one model."""

    def models(self) -> tuple[()]:
        return ()

    def create_key(self, request: KeyCreate) -> KeyCreated:
        return KeyCreated(id="key-1", name=request.name, key="sk-shown-once", team="blue", team_created=True)


def test_a_new_key_is_shown_before_anything_else_is_said() -> None:
    shown = io.StringIO()
    args = Namespace(
        name="ci", models=["nosuch"], team="blue", budget=None, band=None, rpm="none", tpm="none", parallel="none"
    )
    ctx = Context(args=args, out=Output(json=False, out=shown, err=Full()), _client=cast("AdminClient", MakesKeys()))
    with pytest.raises(OSError, match="No space left"):
        create(ctx)
    assert shown.getvalue() == "sk-shown-once\n"
