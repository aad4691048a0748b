"""Weights as an operator keeps them: read back on demand, a damaged file fetched again, orphans listed and removed."""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import DemoCluster, running_demo, wait_for
from tests.support.weights import tiny_llama

pytestmark = pytest.mark.acceptance
GGUF = tiny_llama(padding=4_000_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    with running_demo(tmp_path_factory.mktemp("weights"), model="sim") as demo:
        yield demo


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file on a plain web server."""
    root = tmp_path_factory.mktemp("published")
    (root / "m.gguf").write_bytes(GGUF)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/m.gguf"
        server.shutdown()
        thread.join()


def test_a_limit_is_said_and_its_end_lets_a_running_download_go(cluster: DemoCluster, source: str) -> None:
    changed = cluster.ctl("config", "set", "weights.download_mb_s", "0.1")
    assert changed.stderr == "weights.download_mb_s: 0.0 → 0.1\n"
    cluster.ctl("weights", "fetch", source)
    said = "limited to 100 kB/s in all"
    wait_for("the word on it", lambda: said in cluster.ctl("weights").stdout)
    (info,) = cluster.admin.weights()
    assert info.state == "fetching"
    cluster.ctl("config", "set", "weights.download_mb_s", "0")
    wait_for("the set", lambda: [info for info in cluster.admin.weights() if info.state == "ready"])
    assert said not in cluster.ctl("weights").stdout
    assert on_mirror(cluster).read_bytes() == GGUF
    cluster.ctl("--yes", "weights", "remove", source)


def on_mirror(cluster: DemoCluster) -> Path:
    (path,) = cluster.data.rglob("mirror/sets/*/files/m.gguf")
    return path


def test_a_damaged_file_is_found_and_fetched_again_and_an_orphan_goes(cluster: DemoCluster, source: str) -> None:
    cluster.ctl("weights", "fetch", source)
    wait_for("the set", lambda: [info for info in cluster.admin.weights() if info.state == "ready"])
    assert "its file is what was fetched" in cluster.ctl("weights", "verify", source, "--wait").stderr
    damaged = bytearray(GGUF)
    damaged[2_000_000] ^= 1
    on_mirror(cluster).write_bytes(damaged)
    found = cluster.ctl("weights", "verify", source, "--wait", check=False)
    assert found.returncode == 1
    assert "m.gguf of 1 file is not what was fetched: removed and fetched again" in found.stderr
    wait_for("the set again", lambda: [info for info in cluster.admin.weights() if info.state == "ready"])
    assert on_mirror(cluster).read_bytes() == GGUF
    listed = cluster.ctl_json("weights", "orphans")
    assert [orphan["source"] for orphan in listed["orphans"]] == [source]
    assert listed["total_bytes"] >= len(GGUF)
    gone = cluster.ctl("--yes", "weights", "remove", "--orphans")
    assert gone.stderr.startswith("1 orphan removed: 4 MB freed on the mirror")
    assert not list(cluster.data.rglob("m.gguf"))
    assert cluster.ctl_json("weights", "orphans")["orphans"] == []
    actions = [entry["action"] for entry in cluster.ctl_json("audit")]
    assert {"weights.fetch", "weights.verify", "weights.remove-orphans"} <= set(actions)
