"""An operator asks a node of a running cluster for a llama.cpp release, and hears how it went; audit included."""

import hashlib
import http.server
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import DemoCluster, llmgw, wait_for
from tests.support.release import TAG, release_archive

pytestmark = pytest.mark.acceptance
NAME = f"llama-{TAG}-bin-ubuntu-x64.tar.gz"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a directory."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[str]:
    """Address of a release's listing."""
    root = tmp_path / "published"
    (root / "tags").mkdir(parents=True)
    data = release_archive()
    (root / NAME).write_bytes(data)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root))
    url = f"http://127.0.0.1:{server.server_port}"
    asset = {
        "name": NAME,
        "size": len(data),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "browser_download_url": f"{url}/{NAME}",
    }
    (root / "tags" / TAG).write_text(json.dumps({"tag_name": TAG, "assets": [asset]}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{url}/tags"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_node_installs_what_it_is_asked_for(sim_cluster: DemoCluster, tmp_path: Path, releases: str) -> None:
    data = tmp_path / "node"
    token = sim_cluster.ctl_json("join-token")
    join = llmgw("agent", "join", token["token"], token["url"], "--data", str(data), "--name", "builder")
    assert subprocess.run(join, capture_output=True, timeout=60).returncode == 0
    config = tmp_path / "agent.yaml"
    settings = {"data": str(data), "address": "127.0.0.1", "llamacpp_releases": releases, "llamacpp_variant": "cpu"}
    config.write_text(json.dumps({**settings, "stop_engines_on_exit": True}))

    def there() -> str:
        builds = sim_cluster.ctl_json("node", "builds", "builder")
        return next(str(build["version"]) for build in builds if build["engine"] == "llamacpp")

    agent = subprocess.Popen(llmgw("agent", "-c", str(config)), start_new_session=True)
    try:
        wait_for(
            "the node", lambda: any(n.name == "builder" and n.state == "connected" for n in sim_cluster.status().nodes)
        )
        assert there().startswith("xllamacpp")
        sim_cluster.ctl("node", "build", "builder", "llamacpp", TAG)
        wait_for("the release", lambda: there() == "100 (0abcdef)")
        assert "# installed: cpu: version: 100 (0abcdef)" in sim_cluster.ctl("logs", "builder:llamacpp").stdout
        assert "node.build" in sim_cluster.ctl("audit").stdout
        sim_cluster.ctl("node", "build", "builder", "llamacpp", "auto")
        wait_for("the built-in one again", lambda: there().startswith("xllamacpp"))
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(timeout=30)
