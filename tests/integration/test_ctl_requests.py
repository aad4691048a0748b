"""`ctl logs --requests` and `ctl why` as people and scripts meet them, against the real admin app."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused
from llmgw.api.request_types import RequestQuery
from llmgw.api.targets import parse_server
from llmgw.control.requests import RequestReader
from llmgw.core.requests import RequestLine, Tried
from tests.integration.test_ctl import LLMGW, Ctl, environment
from tests.support.admin_server import TOKENS, Running, running
from tests.support.request_logs import a_line, write
from tests.support.waiting import until_sync

AT = 1_767_225_630.0
LINES = (
    RequestLine(
        id="req-a", at=AT, status=200, end="complete", model="qwen", key_id="k1", key="ci", replica="r2", node="gpu03",
        attempts=(
            Tried(replica="r1", node="gpu02", failed="it cannot be reached: Connection refused", duration_ms=1.5),
            Tried(replica="r2", node="gpu03", at_ms=41.0, duration_ms=600.0),
        ),
        input_tokens=12, output_tokens=30, duration_ms=641.0, stream=True, first_token_ms=100.0,
    ),
    RequestLine(
        id="req-b", at=AT + 1, status=429, end="refused", model="qwen", key_id="k1", key="ci", limit="key/rpm",
        said="Rate limit of key 'ci' (k1) reached: 10 requests a minute, 0 left.", retry_s=9.0,
    ),
    RequestLine(id="req-c", at=AT + 2, status=200, end="complete", model="glm", key_id="k2", key="\x1b[31mred"),
)  # fmt: skip


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        server.control.lines.extend(LINES)
        yield server


@pytest.fixture
def ctl(admin: Running) -> Ctl:
    return Ctl(admin)


def test_requests_are_lines_the_newest_last_and_safe_for_a_terminal(ctl: Ctl) -> None:
    shown = ctl("logs", "--requests")
    assert (shown.returncode, shown.stderr) == (0, "")
    first, second, third = shown.stdout.splitlines()
    assert first == (
        "2026-01-01 00:00:30 req-a 200 qwen ci 641 ms, first token 100 ms 12+30 tokens: first tried on gpu02/r1: it "
        "cannot be reached: Connection refused, after 1.5 ms; answered by gpu03/r2, asked after 41 ms"
    )
    assert "refused with 429 by the limit of requests a minute of key 'ci'" in second
    assert "\x1b" not in third


def test_filters_choose_and_documents_are_for_scripts(ctl: Ctl) -> None:
    failed = ctl("--json", "logs", "--requests", "--failed", "--model", "qwen")
    assert [msgspec.json.decode(line, type=RequestLine) for line in failed.stdout.splitlines()] == [LINES[1]]
    newest = ctl("--json", "logs", "--requests", "--tail", "2").stdout.splitlines()
    assert [json.loads(line)["id"] for line in newest] == ["req-b", "req-c"]
    none = ctl("logs", "--requests", "--key", "nobody")
    assert (none.returncode, none.stdout) == (0, "")
    assert "no such request" in none.stderr


def test_more_requests_than_a_page_holds_come_once_each_though_they_ended_together(ctl: Ctl, tmp_path: Path) -> None:
    log = tmp_path / "requests"
    for index in range(3):
        lines = [a_line(1000 * index + number, at=AT) for number in range(900)]
        write(log, lines, index=index, most_bytes=20_000, kept=99)
    ctl.admin.control.request_log = RequestReader(log)
    shown = ctl("--json", "requests", "--tail", "10000")
    assert (shown.returncode, shown.stderr) == (0, "")
    ids = [json.loads(line)["id"] for line in shown.stdout.splitlines()]
    assert (len(ids), len(set(ids))) == (2700, 2700)
    asked = [call[1] for call in ctl.admin.control.calls if call[0] == "requests"]
    assert len(asked) == 3
    with pytest.raises(Refused, match="no cursor of a page"):
        AdminClient(parse_server(ctl.admin.unix, source="x")).requests(RequestQuery(cursor="1767225630.0~req-1"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("logs",), "name a replica, a node or `server`, or say --requests"),
        (("logs", "gpu0", "--requests"), "leave 'gpu0' out"),
        (("logs", "gpu0", "--failed"), "--failed is for requests"),
        (("logs", "--requests", "--failed", "--status", "5xx"), "give one of them"),
        (("logs", "--requests", "--since", "yesterday"), "--since"),
    ],
)
def test_what_makes_no_sense_is_said_and_not_sent(ctl: Ctl, arguments: tuple[str, ...], said: str) -> None:
    refused = ctl(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert not ctl.admin.control.calls


def test_a_status_of_nobodys_is_refused_by_the_server(ctl: Ctl) -> None:
    refused = ctl("logs", "--requests", "--status", "slow")
    assert refused.returncode == 1
    assert "'slow' is not ok, failed, 4xx or a status such as 429" in refused.stderr


def test_following_shows_each_request_once_as_it_ends(admin: Running, tmp_path: Path) -> None:
    command = [*LLMGW, "ctl", "--server", admin.unix, "--json", "logs", "--requests", "-f"]
    output = tmp_path / "followed"
    with output.open("wb") as file:
        process = subprocess.Popen(command, env=environment(tmp_path), stdout=file, stderr=subprocess.PIPE)
        try:
            until_sync(lambda: output.read_bytes().count(b"\n") == len(LINES))
            fresh = msgspec.structs.replace(LINES[0], id="req-d", at=time.time())
            admin.control.lines.append(fresh)
            until_sync(lambda: b"req-d" in output.read_bytes())
            asked = sum(call[0] == "requests" for call in admin.control.calls)
            until_sync(lambda: sum(call[0] == "requests" for call in admin.control.calls) > asked + 1)
        finally:
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    ids = [json.loads(line)["id"] for line in output.read_text().splitlines()]
    assert ids == ["req-a", "req-b", "req-c", "req-d"]


def test_why_tells_the_story_of_one_request(ctl: Ctl) -> None:
    told = ctl("why", "req-a")
    assert told.returncode == 0
    assert told.stdout.splitlines()[:3] == [
        "first tried on gpu02/r1: it cannot be reached: Connection refused, after 1.5 ms",
        "answered by gpu03/r2, asked after 41 ms",
        "answered by qwen in 641 ms",
    ]
    assert "streaming" in told.stdout
    assert "ci (k1)" in told.stdout
    document = json.loads(ctl("--json", "why", "req-b").stdout)
    assert (document["request"]["id"], len(document["why"])) == ("req-b", 1)
    unknown = ctl("why", "req-nobody")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "req-nobody" in unknown.stderr


def test_viewers_see_no_requests(admin: Running, tmp_path: Path) -> None:
    for role, expected in (("viewer", 4), ("operator", 0)):
        token = tmp_path / role
        token.write_text(TOKENS[role])
        token.chmod(0o600)
        for arguments in (["logs", "--requests"], ["why", "req-a"]):
            command = [*LLMGW, "ctl", "--server", admin.tcp, "--token-file", str(token), *arguments]
            ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=30)
            assert ended.returncode == expected, ended.stderr
