"""The series route over a real socket and TCP, and `ctl series`: what is taken, what is refused, who may ask."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.targets import parse_server
from llmgw.cli.ctl import main
from llmgw.cli.groups.series import bars
from tests.support.admin_server import TOKENS, Running, running


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


def _ask(admin: Running, query: str, *, role: str = "viewer") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    headers = {"Authorization": f"Bearer {TOKENS[role]}"} if role else {}
    connection.request("GET", f"/api/v1/series?{query}", headers=headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


def test_several_figures_of_several_things_in_one_answer(admin: Running) -> None:
    client = AdminClient(parse_server(admin.unix, source="test"))
    answer = client.series(["work", "power"], ["node:gpu0", "card:gpu0/0"], start=100.0, end=400.5, step_s=10)
    assert [(each.of, each.figure, each.unit) for each in answer.series] == [
        ("node:gpu0", "work", "%"),
        ("node:gpu0", "power", "W"),
        ("card:gpu0/0", "work", "%"),
        ("card:gpu0/0", "power", "W"),
    ]
    assert answer.series[0].points == (1.0, None, 3.5)
    assert admin.control.calls[-1] == (
        "series", ("work", "power"), ("node:gpu0", "card:gpu0/0"), 100.0, 400.5, 10.0
    )  # fmt: skip


def test_without_anything_else_it_is_the_cluster_lately(admin: Running) -> None:
    status, body = _ask(admin, "figure=requests")
    assert status == 200
    assert body["series"][0]["points"] == [1.0, None, 3.5]
    assert admin.control.calls[-1] == ("series", ("requests",), ("cluster",), None, None, None)


def test_moments_are_unix_seconds_or_iso_times(admin: Running) -> None:
    status, _ = _ask(admin, "figure=work&from=2026-01-31T12:00:00%2B01:00&to=1769857300")
    assert status == 200
    assert admin.control.calls[-1][3:5] == (1769857200.0, 1769857300.0)


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("figure=watts", "figure", "known are work, busy"),
        ("figure=work&of=nodes", "of", "is none of cluster, model:NAME"),
        ("figure=work&from=yesterday", "from", "'yesterday' is not a number"),
        ("figure=work&from=2026-01-31T12:00:00", "from", "has no offset"),
        ("figure=work&from=nan", "from", "is not a number"),
        ("figure=work&step=0", "step", "0 is not a number of seconds over 0"),
        ("figure=work&step=1e9", "step", "up to a week"),
        ("figure=work&figure=busy", "figure", "more than once"),
        ("figures=work", "figures", "known here: figure, of, from, to, step"),
        ("figure=" + ",".join(f"f{i}" for i in range(65)), "figure", "65 names are more than 64"),
    ],
)
def test_what_it_does_not_take_is_named(admin: Running, query: str, field: str, says: str) -> None:
    status, body = _ask(admin, query)
    assert (status, body["field"]) == (400, field)
    assert says in body["message"]


def test_names_that_are_not_there_and_callers_that_are_nobody(admin: Running) -> None:
    status, body = _ask(admin, "figure=work&of=node:gpu9")
    assert (status, body["message"]) == (404, "there is no node 'gpu9'; known are gpu0, gpu1")
    assert _ask(admin, "figure=work", role="")[0] == 401


def test_ctl_draws_a_line_of_bars_each(admin: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--server", admin.unix, "series", "work", "power", "--of", "node:gpu0,node:gpu1", "--last", "6h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["OF", "FIGURE", "LEAST", "MEAN", "MOST", "NOW"]
    assert [line.split() for line in lines[1:3]] == [
        ["node:gpu0", "work", "%", "▃", "█", "1.0", "2.2", "3.5", "3.5"],
        ["node:gpu0", "power", "W", "▃", "█", "1.0", "2.2", "3.5", "3.5"],
    ]
    assert len(lines) == 5
    _, figures, of, start, _, _ = admin.control.calls[-1]
    assert (figures, of) == (("work", "power"), ("node:gpu0", "node:gpu1"))
    assert start is not None


def test_ctl_as_a_table_and_as_a_document(admin: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--server", admin.unix, "series", "work", "--out", "table", "--step", "1m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["UTC", "WORK", "%", "cluster"]
    assert [line.split()[-1] for line in lines[1:]] == ["1.0", "-", "3.5"]
    assert admin.control.calls[-1][5] == 60.0
    assert main(["--server", admin.unix, "--json", "series", "work"]) == 0
    assert json.loads(capsys.readouterr().out)["series"][0]["points"] == [1.0, None, 3.5]


@pytest.mark.parametrize(("given", "says"), [("x", "--last 'x' is not like"), ("0s", "--last '0s' is not like")])
def test_ctl_names_what_is_wrong(admin: Running, given: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--server", admin.unix, "series", "work", "--last", given]) == 2
    assert says in capsys.readouterr().err


def test_errors_are_the_server_s_own_sentences(admin: Running) -> None:
    client = AdminClient(parse_server(admin.unix, source="test"))
    with pytest.raises(ClientError, match="'watts': there is no such figure; known are work, busy"):
        client.series(["watts"])


def test_bars_are_means_from_zero_to_the_highest() -> None:
    assert bars([0.0, 4.0, None, 8.0], 4) == "▁▅ █"
    assert bars([0.0, 8.0, 8.0, 8.0], 2) == "▅█"
    assert bars([None, None], 4) == "  "
    assert bars([0.0, 0.0], 4) == "▁▁"
