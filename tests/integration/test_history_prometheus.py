"""Older figures from a Prometheus: a real one that scrapes our own metrics page, and ones that answer anything else."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from llmgw.api.series import FIGURES, Of, Scope, Series, figures_of
from llmgw.api.types import CardInfo, ClusterStatus, ModelInfo, NodeInfo, ReplicaInfo, RouterInfo, ServerInfo
from llmgw.control.history import metrics_store
from llmgw.control.history.metrics_store import PrometheusStore, StoreSettings, check_url
from llmgw.control.history.series import Found, Wanted
from llmgw.control.metrics import render
from llmgw.control.router_metrics import Account, RouterMetrics
from llmgw.core.errors import LlmgwError
from llmgw.core.routing import UsageRow
from llmgw.router.meters import Meters
from tests.support.admin_server import running
from tests.support.builders import a_model
from tests.support.fake_control import FakeControl

PROMETHEUS = shutil.which("prometheus")
HOSTILE = 'm"\\{}'
"""A model's name that would end a string of PromQL. No catalog takes it: a store may hold whatever was there once."""
WAIT_S = 60.0


class Scraped(FakeControl):
    """Two machines of two cards, a model on one of the cards, and requests that go on."""

    async def metrics(self) -> str:
        self.asked = getattr(self, "asked", 0) + 1
        return render(_status(), _totals(self.asked).totals(), {})


def _status() -> ClusterStatus:
    def card(node: str, index: int, power: float, **more: float) -> CardInfo:
        return CardInfo(
            uuid=f"GPU-{node}-{index}",
            index=index,
            name="A",
            gpu_class="a",
            memory_total_bytes=80,
            memory_used_bytes=20,
            utilization_percent=power / 7,
            power_w=power,
            power_limit_w=700.0,
            temperature_c=power / 10,
            replica="r1" if (node, index) == ("n1", 0) else None,
            **more,  # type: ignore[arg-type]
        )

    def node(name: str, *cards: CardInfo) -> NodeInfo:
        return NodeInfo(
            name=name,
            state="connected",
            heartbeat_age_s=1.0,
            cpus=8,
            cpu_percent=25.0,
            memory_total_bytes=100,
            memory_available_bytes=60,
            network_in_bytes_per_s=1.25e9,
            infiniband_out_bytes_per_s=4e10,
            cards=cards,
        )

    model = a_model("qwen")
    return ClusterStatus(
        version="1",
        cluster_id="c",
        leader="a",
        epoch=1,
        servers=(ServerInfo(id="a", pid=1, host="h", leader=True, version="1", epoch=1),),
        routers=(RouterInfo(pid=7, port=8080, requests=3, open_requests=5),),
        nodes=(
            node("n1", card("n1", 0, 350.0, sm_active_percent=90.0), card("n1", 1, 70.0)),
            node("n2", card("n2", 0, 14.0), card("n2", 1, 7.0)),
        ),
        models=(ModelInfo(name="qwen", state="ready", ready=1, wanted=1, source="", spec=model),),
        replicas=(
            ReplicaInfo(
                id="r1", model="qwen", profile="p", engine="e", node="n1", state="ready", since_s=1, cards=("GPU-n1-0",)
            ),
        ),
        database="",
    )


def _totals(times: int) -> RouterMetrics:
    meters, metrics = Meters(), RouterMetrics()
    for number in range(10 * times):
        meters.answered(
            UsageRow(
                id=str(number),
                at=1.0,
                key_id="k",
                model="qwen",
                status=200,
                input_tokens=10,
                output_tokens=20,
                first_token_ms=70.0,
                duration_ms=900.0,
            )
        )
    Account(metrics).hear(meters.report(usage_dropped=0, usage_waiting=0))
    return metrics


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """A Prometheus that scrapes the admin app's `/metrics` twice a second; its address."""
    if PROMETHEUS is None:
        pytest.skip("no `prometheus` on this machine: Debian's package of that name has it")
    with running(tmp_path, Scraped()) as admin:
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
            f"scrape_configs: [{{job_name: llmgw, static_configs: [{{targets: ['127.0.0.1:{admin.port}']}}]}}]\n"
        )
        with (tmp_path / "prometheus.log").open("wb") as log:
            command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
            port = _free_port()
            command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait(WAIT_S)


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wanted(*of: Found, figures: tuple[str, ...], end: float, span: float = 10.0, step: float = 5.0) -> Wanted:
    by_name = {figure.name: figure for figure in FIGURES}
    return Wanted(
        figures=tuple(by_name[name] for name in figures), of=of, start=end - span, end=end, step_s=step, base_s=5
    )


def _store(url: str, token_file: str = "", **more: float) -> PrometheusStore:
    return PrometheusStore(lambda: StoreSettings(url, token_file), **more)  # type: ignore[arg-type]


CLUSTER = Found(of=Of(Scope.CLUSTER), name="")
QWEN = Found(of=Of(Scope.MODEL, "qwen"), name="qwen")
N1 = Found(of=Of(Scope.NODE, "n1"), name="n1", cards=("GPU-n1-0", "GPU-n1-1"))
CARD = Found(of=Of(Scope.CARD, "n1/0"), name="GPU-n1-0", cards=("GPU-n1-0",), node="n1", index=0)


@pytest.mark.trio
async def test_every_figure_is_read_from_a_real_prometheus(prometheus: str) -> None:
    import time

    store = _store(prometheus)
    newest: dict[tuple[str, str], float | None] = {}
    with trio.fail_after(WAIT_S):
        # It starts, scrapes a few times, and then has a rate to tell.
        while not newest.get(("cluster", "requests")):
            try:
                newest = _last(await store.read(_wanted(CLUSTER, figures=("requests",), end=time.time())))
            except LlmgwError:
                await trio.sleep(0.1)
    for found in (CLUSTER, QWEN, N1, CARD):
        # Whatever there is of a scope is a question that Prometheus understands.
        figures = figures_of(found.of.scope)
        newest |= _last(await store.read(_wanted(found, figures=figures, end=time.time())))
    expected = {
        ("card:n1/0", "work"): 90.0,
        ("card:n1/0", "busy"): 50.0,
        ("card:n1/0", "memory"): 25.0,
        ("card:n1/0", "tensor"): None,
        # Work is multiprocessors where they are counted, and power against its limit elsewhere.
        ("node:n1", "work"): 50.0,
        ("node:n1", "power"): 420.0,
        ("node:n1", "power_cards"): 2.0,
        ("model:qwen", "power_cards"): 1.0,
        ("cluster", "power_cards"): 4.0,
        ("node:n1", "temperature"): 35.0,
        ("node:n1", "cpu"): 25.0,
        ("node:n1", "host_memory"): 40.0,
        ("node:n1", "network_in"): 1250.0,
        ("node:n1", "network_out"): None,
        ("node:n1", "infiniband_out"): 40_000.0,
        ("model:qwen", "power"): 350.0,
        ("model:qwen", "work"): 90.0,
        ("model:qwen", "ready"): 1.0,
        ("model:qwen", "open"): None,
        ("cluster", "power"): 441.0,
        ("cluster", "open"): 5.0,
        ("cluster", "errors"): 0.0,
        ("cluster", "cards_working"): 1.0,
        ("cluster", "cards_idle"): 0.0,
        ("cluster", "cards_free"): 3.0,
    }
    assert {key: newest[key] for key in expected} == pytest.approx(expected, nan_ok=True)
    requests, tokens = newest["model:qwen", "requests"], newest["model:qwen", "output_tokens"]
    assert requests is not None
    assert tokens == pytest.approx(20 * requests, rel=0.2)
    assert newest["cluster", "first_token_p95"] == pytest.approx(70.0, abs=10.0)
    assert newest["model:qwen", "tokens_per_wh"] == pytest.approx(3600 * (tokens or 0) / 350, rel=0.2)


@pytest.mark.trio
async def test_a_name_is_a_string_of_promql_whatever_is_in_it(prometheus: str) -> None:
    import time

    store = _store(prometheus)
    hostile = Found(of=Of(Scope.MODEL, HOSTILE), name=HOSTILE)
    with trio.fail_after(WAIT_S):
        while True:
            try:
                found = await store.read(_wanted(hostile, figures=figures_of(Scope.MODEL), end=time.time()))
                break
            except LlmgwError as error:
                # It starts; a question it cannot parse would be a 400, which no waiting mends.
                if "400" in error.message:
                    raise
                await trio.sleep(0.1)
    assert {point for each in found for point in each.points} <= {None, 0.0}


def _last(series: tuple[Series, ...]) -> dict[tuple[str, str], float | None]:
    return {(each.of, each.figure): each.points[-1] for each in series}


# -- stores that answer something else


async def _answering(answer: bytes, heard: list[bytes], stream: trio.SocketStream) -> None:
    heard.append(await stream.receive_some(65536))
    if not answer:
        await trio.sleep_forever()
    await stream.send_all(answer)
    await stream.aclose()


def _http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _read(answer: bytes, *, token_file: str = "", private: tuple[Path, ...] = ()) -> tuple[list[bytes], str]:
    """What a store that answers `answer` was asked, and what is said of it; its points when nothing is."""
    heard: list[bytes] = []
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_tcp, partial(_answering, answer, heard), 0, host="127.0.0.1")
        )
        port = listeners[0].socket.getsockname()[1]
        store = PrometheusStore(
            lambda: StoreSettings(f"http://127.0.0.1:{port}/prom/", token_file), private=private, deadline_s=0.5
        )
        assert store.configured
        assert store.where == f"http://127.0.0.1:{port}/prom/"
        try:
            series = await store.read(_wanted(CLUSTER, figures=("power",), end=1_000.0))
            said = str(series[0].points)
        except LlmgwError as error:
            said = error.message
        nursery.cancel_scope.cancel()
    return heard, said


@pytest.mark.trio
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "it did not answer within 0.5 s"),
        (_http("503 Busy", b"<html>"), "it answers 503 and no result of a query; is it Prometheus?"),
        (_http("200 OK", b"<html>"), "it answers 200 and no result of a query; is it Prometheus?"),
        (_http("200 OK", b'{"status": "success"}'), "it answers 200 and no result of a query"),
        (
            _http("422 Unprocessable", b'{"status": "error", "error": "too many samples"}'),
            "it answers 422: too many samples",
        ),
        (_http("200 OK", b" " * (metrics_store.MAX_ANSWER_BYTES + 1)), "answers with more than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "ended the answer early"),
        (b"nonsense\r\n\r\n", "something that is not HTTP"),
        (_http("200 OK", b'{"status": "success", "data": {"result": []}}'), "(None, None)"),
        (
            _http(
                "200 OK",
                b'{"status": "success", "data": {"result": [{"values": '
                b'[[995, "1.5"], [1000, "NaN"], [5000, "2"], [990, "x"]]}]}}',
            ),
            "(1.5, None)",
        ),
    ],
)
async def test_whatever_a_store_answers_is_points_or_a_sentence(answer: bytes, says: str) -> None:
    heard, said = await _read(answer)
    assert says in said
    assert heard[0].startswith(b"GET /prom/api/v1/query_range?query=sum%28max+by+")
    assert b"start=995.000" in heard[0]
    assert b"end=1000.000" in heard[0]
    assert b"authorization" not in heard[0].lower()


@pytest.mark.trio
async def test_nothing_listens_there() -> None:
    with pytest.raises(LlmgwError, match=r"cannot connect to 127\.0\.0\.1:1 "):
        await _store("http://127.0.0.1:1").read(_wanted(CLUSTER, figures=("power",), end=1_000.0))


@pytest.mark.trio
async def test_a_token_is_sent_and_never_said(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame-123456\n")
    token.chmod(0o600)
    heard, said = await _read(_http("401 Who", b"{}"), token_file=str(token))
    assert b"Authorization: Bearer sesame-123456\r\n" in heard[0]
    assert "it answers 401" in said
    assert "sesame" not in said
    # The server's own secrets are sent to nobody, and a file that is not there is named.
    heard, said = await _read(b"", token_file=str(token), private=(tmp_path,))
    assert heard == []
    assert f"its token file {token}: it belongs to the server itself" in said
    heard, said = await _read(b"", token_file="/nowhere/token")
    assert heard == []
    assert said.startswith("its token file /nowhere/token: it cannot be read")


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("", True),
        ("http://metrics:9090", True),
        ("https://metrics.lab/prom", True),
        ("metrics:9090", False),
        ("ftp://metrics", False),
        ("http://", False),
        ("http://ops:secret@metrics", False),
        ("http://metrics/?a=b", False),
        ("http://metrics:port", False),
    ],
)
def test_addresses_that_will_do(url: str, fine: bool) -> None:
    assert (check_url(url) == "") is fine
    assert "secret" not in check_url(url)
