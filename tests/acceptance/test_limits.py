"""Keys, teams, budgets and prices on a real cluster, by `ctl` alone: what is set is in force, what was used is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import DemoCluster, running_demo, wait_for
from tests.support.streams import Answer, chat_body, post

pytestmark = pytest.mark.acceptance
TOLD_S = 10.0
"""Far less than the 25 s after which a router asks for a known key again: what is in force within it was told."""
MODEL_FILE = """
name: priced
source: "sim:priced"
prices: {input: 10, output: 100000}
profiles: [{name: cpu, engine: sim}]
"""
ANSWER_MICROS = 4 * 100_000
"""What four tokens cost; the prompt's few cost little beside them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    with running_demo(tmp_path_factory.mktemp("limits"), model="sim") as running:
        file = Path(running.data) / "priced.yaml"
        file.write_text(MODEL_FILE)
        running.ctl("model", "add", "-f", str(file), "--wait")
        yield running


def ask(cluster: DemoCluster, key: str) -> Answer:
    return post(cluster, "/v1/chat/completions", chat_body("priced", tokens=4), key=key)


def soon(cluster: DemoCluster, key: str, status: int) -> None:
    """The change before this is in force."""
    wait_for(f"{status} for the key", lambda: ask(cluster, key).status == status, within_s=TOLD_S, every_s=0.01)


def usage(cluster: DemoCluster, key_id: str) -> dict[str, int]:
    rows = cluster.ctl_json("usage")
    return next((row for row in rows if row["key_id"] == key_id), {"requests": 0, "cost_micros": 0})


def test_limits_of_a_key_and_its_team_hold_change_and_go(cluster: DemoCluster) -> None:
    made = cluster.ctl_json("keys", "create", "laptop", "--team", "blue", "--rpm", "2")
    assert made["team_created"]
    key = made["key"]
    # A minute may end in between; then there is room for two more.
    answers = [ask(cluster, key) for _ in range(6)]
    assert {a.status for a in answers} == {200, 429}
    refused = next(a for a in answers if a.status == 429)
    assert made["id"] in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1
    assert key not in refused.body.decode()

    cluster.ctl("keys", "limits", "laptop", "--rpm", "none")
    soon(cluster, key, 200)
    cluster.ctl("teams", "limits", "blue", "--parallel", "0")
    soon(cluster, key, 429)
    cluster.ctl("keys", "move", "laptop", "none")
    soon(cluster, key, 200)
    cluster.ctl("--yes", "keys", "revoke", "laptop")
    soon(cluster, key, 401)
    cluster.ctl("--yes", "teams", "remove", "blue")


def test_a_budget_ends_what_it_paid_for_and_usage_tells_its_cost(cluster: DemoCluster) -> None:
    made = cluster.ctl_json("keys", "create", "ci", "--budget", "1/month")
    answers = [ask(cluster, made["key"]) for _ in range(5)]
    paid = sum(a.status == 200 for a in answers)
    assert paid == 2
    assert answers[-1].json()["error"]["code"] == "insufficient_quota"
    wait_for("the usage is stored", lambda: usage(cluster, made["id"])["requests"] == paid)
    cost = usage(cluster, made["id"])["cost_micros"]
    assert paid * ANSWER_MICROS <= cost <= 1_000_000
    (listed,) = [key for key in cluster.ctl_json("keys", "list") if key["id"] == made["id"]]
    assert (listed["spent_month_micros"], listed["spent_day_micros"]) == (cost, cost)
    assert cluster.model_info("priced").cost_today_micros >= cost
    cluster.ctl("keys", "budget", "ci", "100/month")
    soon(cluster, made["key"], 200)
