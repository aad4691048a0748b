"""Lives and deaths: each process killed in turn, under load, and what must go on does."""

import os
import signal
import time

import psutil
import pytest

from tests.support.cluster import DemoCluster, wait_for
from tests.support.streams import Stream, chat_body, post

pytestmark = pytest.mark.acceptance

STREAM_TOKENS = 80
SLOW = {"sim": {"rate": 20, "tokens": STREAM_TOKENS}}
"""A stream slow enough to be in flight when something dies: a token every 50 ms."""


def _slow_stream(cluster: DemoCluster) -> Stream:
    """A stream of a few seconds, with its first tokens received."""
    stream = Stream(cluster, chat_body("sim", tokens=STREAM_TOKENS, stream=True, **SLOW)).start()
    stream.wait_for_events(5)
    return stream


def _answers(cluster: DemoCluster) -> bool:
    return post(cluster, "/v1/chat/completions", chat_body("sim", tokens=2)).status == 200


def _quietly_answers(cluster: DemoCluster) -> bool:
    """The same while nothing may listen."""
    try:
        return _answers(cluster)
    except OSError:
        return False


def _pid_of(cluster: DemoCluster, name: str) -> int:
    """Pid of the demo's child `server` or `agent`."""

    def find() -> int | None:
        for process in psutil.Process(cluster.process.pid).children():
            if f" {name} -c " in " ".join(process.cmdline()):
                return int(process.pid)
        return None

    pid: int = wait_for(f"the {name}", find)
    return pid


@pytest.mark.promise("A4")
def test_a_killed_agent_takes_no_engine_and_no_stream(sim_cluster: DemoCluster) -> None:
    replica = sim_cluster.replica()
    started = psutil.Process(replica.pid).create_time()
    stream = _slow_stream(sim_cluster)
    agent = _pid_of(sim_cluster, "agent")
    os.kill(agent, signal.SIGKILL)
    assert stream.finish().complete
    assert stream.tokens == STREAM_TOKENS

    def adopted() -> bool:
        status = sim_cluster.quiet_status()
        if status is None or _pid_of(sim_cluster, "agent") == agent:
            return False
        return any(r.id == replica.id and r.pid == replica.pid and r.adopted for r in status.replicas)

    wait_for("the engine is re-adopted", adopted, within_s=10)
    assert psutil.Process(replica.pid).create_time() == started
    assert _answers(sim_cluster)


def test_an_agent_told_to_end_is_back_with_its_engine(sim_cluster: DemoCluster) -> None:
    """The demo's agent ends its engines with itself; the supervisor and the reconciler bring both back."""
    replica = sim_cluster.replica()
    os.kill(_pid_of(sim_cluster, "agent"), signal.SIGTERM)
    wait_for("the engine ended", lambda: not psutil.pid_exists(replica.pid))
    assert wait_for("another engine answers", lambda: _answers(sim_cluster), within_s=30)
    assert sim_cluster.replica().pid != replica.pid


@pytest.mark.promise("A3")
def test_a_killed_server_is_not_noticed_by_streams_or_known_keys(sim_cluster: DemoCluster) -> None:
    assert _answers(sim_cluster)
    before = sim_cluster.status()
    stream = _slow_stream(sim_cluster)
    server = before.servers[0].pid
    os.kill(server, signal.SIGKILL)
    answered = 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert _answers(sim_cluster)
        answered += 1
        status = sim_cluster.quiet_status()
        if status is None or status.servers[0].pid == server or not status.servers[0].leader:
            continue
        if status.routers and status.routers[0].connected:
            break
    assert answered >= 1
    assert stream.finish().complete
    after = sim_cluster.status()
    assert after.servers[0].pid != server
    assert after.epoch > before.epoch
    assert [r.pid for r in after.routers] == [r.pid for r in before.routers]

    def same_replicas() -> bool:
        status = sim_cluster.quiet_status()
        return status is not None and [(r.id, r.pid) for r in status.replicas] == [
            (r.id, r.pid) for r in before.replicas
        ]

    wait_for("the same replicas are known again", same_replicas)
    assert [m.name for m in sim_cluster.status().models] == [m.name for m in before.models]
    assert sim_cluster.ctl_json("keys", "list")


def test_a_killed_engine_is_back_by_itself(sim_cluster: DemoCluster) -> None:
    replica = sim_cluster.replica()
    os.kill(replica.pid, signal.SIGKILL)
    refused = 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = post(sim_cluster, "/v1/chat/completions", chat_body("sim", tokens=2))
        if answer.status == 200:
            break
        refused += 1
        assert answer.status in (502, 503), answer.body
        if answer.status == 503:
            assert int(answer.headers["retry-after"]) >= 1
        time.sleep(0.05)
    back = sim_cluster.replica()
    assert back.pid != replica.pid
    assert back.id == replica.id
    assert back.restarts == replica.restarts + 1


def test_an_engine_told_to_end_is_back_by_itself(sim_cluster: DemoCluster) -> None:
    replica = sim_cluster.replica()
    os.kill(replica.pid, signal.SIGTERM)
    wait_for("the engine ended", lambda: not psutil.pid_exists(replica.pid))
    assert wait_for("another engine answers", lambda: _answers(sim_cluster))
    assert sim_cluster.replica().pid != replica.pid


def test_a_server_told_to_end_is_back_with_everything_it_knew(sim_cluster: DemoCluster) -> None:
    """A clean stop ends its routers too; the demo starts it again, and no engine is touched."""
    before = sim_cluster.status()
    engine = sim_cluster.replica().pid
    os.kill(before.servers[0].pid, signal.SIGTERM)

    def back() -> bool:
        status = sim_cluster.quiet_status()
        return status is not None and status.servers[0].pid != before.servers[0].pid

    wait_for("another server", back)
    assert wait_for("the model answers", lambda: _quietly_answers(sim_cluster))
    assert sim_cluster.replica().pid == engine
    assert [m.name for m in sim_cluster.status().models] == [m.name for m in before.models]


def test_an_engine_killed_under_a_stream_ends_it_with_an_error_and_done(sim_cluster: DemoCluster) -> None:
    replica = sim_cluster.replica()
    stream = _slow_stream(sim_cluster)
    os.kill(replica.pid, signal.SIGKILL)
    stream.finish()
    assert stream.error == ""
    assert stream.events[-1] == "[DONE]"
    assert '"error"' in stream.events[-2]
    wait_for("the engine is back", lambda: _answers(sim_cluster))


def test_a_killed_router_is_back_within_two_seconds_on_the_same_socket(sim_cluster: DemoCluster) -> None:
    assert _answers(sim_cluster)
    router = sim_cluster.status().routers[0].pid
    os.kill(router, signal.SIGKILL)
    killed_at = time.monotonic()
    # The listening socket never closes: this request waits in its queue for the next router.
    assert _answers(sim_cluster)
    assert time.monotonic() - killed_at < 10
    assert wait_for(
        "another router",
        lambda: (s := sim_cluster.quiet_status()) and s.routers and s.routers[0].pid != router,
    )


def test_a_killed_database_is_back_and_serving_went_on(sim_cluster: DemoCluster) -> None:
    assert _answers(sim_cluster)
    pid = int(sim_cluster.status().database.rsplit(" ", 1)[1])
    os.kill(pid, signal.SIGKILL)
    assert _answers(sim_cluster)

    def writes_again() -> bool:
        return sim_cluster.ctl("keys", "create", "after the crash", check=False).returncode == 0

    wait_for("the database takes writes again", writes_again)
    assert sim_cluster.status().servers[0].leader
