"""An engine that hangs, in a real cluster: clients are told at once, operators why, and it is back when it is back."""

import json
import os
import signal
import threading

import pytest

from llmgw.router.limits import FAILURES_IN_A_ROW, PAUSE_LAST_S
from tests.support.cluster import DemoCluster, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance


def _ask_many(cluster: DemoCluster) -> None:
    threads = [
        threading.Thread(target=post, args=(cluster, "/v1/chat/completions", chat_body("sim", tokens=2)))
        for _ in range(4 * FAILURES_IN_A_ROW)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _broken(cluster: DemoCluster) -> str | None:
    return next((text for text in cluster.status().problems if "breaker open on" in text), None)


@pytest.mark.promise("A8")
@pytest.mark.case("C7")
def test_a_stopped_engine_is_left_alone_told_of_and_back_within_its_bound(sim_cluster: DemoCluster) -> None:
    replica = sim_cluster.replica()
    sim_cluster.ctl("config", "set", "router.timeouts.first_byte", "0.5")
    try:
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            # Each router has its own breaker, and the kernel chooses whom a connection reaches.
            def told() -> str | None:
                _ask_many(sim_cluster)
                return _broken(sim_cluster)

            sentence = wait_for("the breaker is told of", told)
            assert sentence.startswith(f"replica {replica.id} of model sim: breaker open on ")
            assert "last failure: it gives no first byte in time" in sentence
            shown = next(r for r in sim_cluster.status().replicas if r.id == replica.id)
            assert shown.breaker in ("open", "half-open")

            def refused() -> bool:
                answer = post(sim_cluster, "/v1/chat/completions", chat_body("sim", tokens=2))
                error = json.loads(answer.body)["error"]
                if error["code"] != "model_unavailable":
                    return False
                assert answer.status == 503
                assert "'sim'" in error["message"]
                return True

            wait_for("a refusal without waiting", refused)
        finally:
            os.kill(replica.pid, signal.SIGCONT)
        answers = chat_body("sim", tokens=2)
        wait_for(
            "it answers again",
            lambda: post(sim_cluster, "/v1/chat/completions", answers).status == 200,
            within_s=PAUSE_LAST_S,
        )

        def healed() -> bool:
            _ask_many(sim_cluster)
            status = sim_cluster.status()
            return _broken(sim_cluster) is None and all(r.breaker == "" for r in status.replicas)

        wait_for("nothing is left to tell", healed, within_s=2 * PAUSE_LAST_S)
    finally:
        sim_cluster.ctl("config", "set", "router.timeouts.first_byte", "120")
