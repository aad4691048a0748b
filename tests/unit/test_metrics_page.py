"""The page a scraper reads: well-formed whatever names are on it, and documented to the last label."""

import re
from pathlib import Path

import pytest

from llmgw.api.types import CardInfo, ClusterStatus, ModelInfo, NodeInfo, ReplicaInfo, RouterInfo, ServerInfo
from llmgw.control.exposition import Page, figure
from llmgw.control.metrics import render
from llmgw.control.router_metrics import Account, RouterMetrics, Totals
from llmgw.core.cluster import MachinePart
from llmgw.core.meters import CHOICES, LOOKUPS, MeterReport, Queue
from llmgw.core.routing import UsageRow
from llmgw.core.wear import CardWear
from llmgw.router.meters import Meters
from tests.support.builders import a_model
from tests.support.exposition import Family, parse

DOCUMENTED = Path(__file__).parents[2] / "docs" / "metrics.md"
HOSTILE = 'm"\\\n{le="1"} 1'


def a_router(name: str = "m") -> Meters:
    """A router that saw something of everything."""
    meters = Meters()
    for row in (
        UsageRow(
            id="1",
            at=1.0,
            key_id="k",
            model=name,
            status=200,
            input_tokens=10,
            cached_tokens=4,
            output_tokens=3,
            first_token_ms=70.0,
            duration_ms=900.0,
            attempts=2,
        ),
        UsageRow(id="2", at=1.0, key_id="k", model=name, status=502, failed=True, duration_ms=40_000.0, attempts=3),
    ):
        meters.answered(row)
    meters.answered(UsageRow(id="3", at=1.0, key_id="k", model="n", asked=name, status=200))
    meters.refused(name, 429, ("team", "rpm"))
    meters.refused("", 401, None)
    meters.of(name).breaker_openings += 1
    meters.of(name).chosen["prefix"] += 1
    for cell in (0, 3, -2):
        meters.of(name).gaps[cell] += 1
    meters.of(name).gaps[-1] += 12.5
    meters.waited(name, 0.4)
    meters.turned_away(name, "bronze", "full")
    meters.queues = lambda: {name: Queue(waiting={"gold": 1, "bronze": 2}, oldest_s=1.5)}
    meters.key_lookups["hit"] += 3
    return meters


def totals_of(*routers: Meters) -> Totals:
    metrics = RouterMetrics()
    for meters in routers:
        Account(metrics).hear(meters.report(usage_dropped=1, usage_waiting=2))
    return metrics.totals()


def a_status() -> ClusterStatus:
    """A cluster of one of each, every figure reported."""
    card = CardInfo(
        uuid="u",
        index=0,
        name="A",
        gpu_class="a",
        memory_total_bytes=2,
        memory_used_bytes=1,
        utilization_percent=50.0,
        temperature_c=40.0,
        power_w=100.5,
        sm_active_percent=0.0,
        power_limit_w=700.0,
        memory_temperature_c=50.0,
        memory_utilization_percent=1.0,
        sm_clock_mhz=1980.0,
        throttled=False,
        ecc_uncorrected=0,
        sm_occupancy_percent=2.0,
        tensor_active_percent=3.0,
        dram_active_percent=4.0,
        wear=CardWear(
            pcie_replays=0,
            retired_pages_sbe=1,
            retired_pages_dbe=2,
            remapped_rows=3,
            remap_failed=False,
            nvlink_replay_errors=4,
            nvlink_recovery_errors=5,
            xid_count=6,
            xid_last=79,
        ),
        nvlink_peers=("GPU-b", "GPU-c"),
        replica="m-ready",
        idle_s=12.5,
        healthy=True,
    )
    node = NodeInfo(
        name="n1",
        state="connected",
        address="a",
        agent_version="1",
        heartbeat_age_s=0.1,
        cpus=2,
        cpu_percent=3.0,
        load_1m=0.1,
        memory_total_bytes=100,
        memory_available_bytes=40,
        cards=(card, CardInfo(uuid="MIG-a", index=1001, name="B", gpu_class="a-mig-1g.10gb", parent="u")),
        cpu_temperature_c=55.0,
        cpu_power_w=200.0,
        inlet_temperature_c=23.0,
        network_in_bytes_per_s=1e9,
        network_out_bytes_per_s=0.0,
        infiniband_in_bytes_per_s=2e10,
        infiniband_out_bytes_per_s=3e10,
        parts=(
            MachinePart(kind="disk", name="nvme0n1", size_bytes=1),
            MachinePart(kind="infiniband", name="mlx5_0/1", state="active", errors=0, link_downs=2),
        ),
    )
    return ClusterStatus(
        version="1",
        cluster_id="c",
        leader="s",
        epoch=1,
        servers=(ServerInfo(id="s", pid=1, host="h", leader=True, version="1", epoch=1),),
        routers=(RouterInfo(pid=7, port=1, requests=5, open_requests=1, version="1", connected=True),),
        nodes=(node,),
        models=(ModelInfo(name="m", state="ready", ready=1, wanted=2, source="s", spec=a_model()),),
        replicas=tuple(
            ReplicaInfo(
                id=f"m-{state}",
                model="m",
                profile="p",
                engine="sim",
                node="n1",
                state=state,
                since_s=1.0,
                cpu_percent=250.0 if state == "ready" else None,
                resident_bytes=2**30 if state == "ready" else None,
                running=4 if state == "ready" else None,
                waiting=2 if state == "ready" else None,
                kv_used=0.61 if state == "ready" else None,
                load_failures=0 if state == "ready" else None,
            )
            for state in ("ready", "starting")
        ),
        database="ok",
    )


def page(totals: Totals, *breakers: str) -> dict[str, Family]:
    return parse(render(a_status(), totals, breakers))


def test_every_count_is_on_the_page_under_its_labels() -> None:
    found = page(totals_of(a_router(), a_router()))
    requests = found["llmgw_requests_total"]
    assert requests.value(model="m", outcome="ok") == 2
    assert requests.value(model="m", outcome="engine_error") == 2
    assert requests.value(model="m", outcome="refused") == 2
    assert requests.value(model="m", outcome="unavailable") == 0
    assert requests.value(model="", outcome="client_error") == 2
    tokens = found["llmgw_tokens_total"]
    assert [tokens.value(model="m", kind=kind) for kind in ("input", "cached", "output")] == [20, 8, 6]
    assert found["llmgw_limits_hit_total"].value(model="m", scope="team", limit="rpm") == 2
    assert found["llmgw_retries_total"].value(model="m") == 6
    assert found["llmgw_fallbacks_total"].value(model="m", answered_by="n") == 2
    assert found["llmgw_breaker_openings_total"].value(model="m") == 2
    choices = found["llmgw_replica_choices_total"]
    assert [choices.value(model="m", by=by) for by in CHOICES] == [0, 0, 2, 0]
    lookups = found["llmgw_key_lookups_total"]
    assert [lookups.value(result=result) for result in LOOKUPS] == [6, 0, 0, 0, 0]
    assert found["llmgw_usage_rows_dropped_total"].value() == 2
    assert found["llmgw_usage_rows_waiting"].value() == 4


def test_buckets_hold_those_below_them() -> None:
    found = page(totals_of(a_router()))
    gaps = found["llmgw_inter_token_seconds"]
    values = [gaps.value("_bucket", model="m", le=le) for le in ("0.001", "0.003", "0.005", "10", "+Inf")]
    assert values == [1, 1, 2, 2, 3]
    assert (gaps.value("_count", model="m"), gaps.value("_sum", model="m")) == (3, 12.5)
    first = found["llmgw_first_token_seconds"]
    assert [first.value("_bucket", model="m", le=le) for le in ("0.05", "0.075", "1")] == [0, 1, 1]
    # A model that streamed nothing has no histogram rather than one of zeros.
    assert {dict(labels)["model"] for _, labels in gaps.samples} == {"m"}


def test_a_cluster_without_routers_shows_none_of_their_figures() -> None:
    found = page(Totals())
    assert not {"llmgw_requests_total", "llmgw_usage_rows_waiting", "llmgw_usage_rows_dropped_total"} & found.keys()
    assert found["llmgw_model_replicas"].value(model="m", state="ready") == 1
    assert found["llmgw_model_replicas"].value(model="m", state="failed") == 0
    assert found["llmgw_router_requests_total"].value(pid="7") == 5


def test_breakers_are_of_replicas_that_should_take_requests() -> None:
    found = page(Totals(), "external:org/a:b:1", "m-gone")["llmgw_breaker_open"]
    assert found.samples == {
        (found.name, frozenset({("model", "m"), ("replica", "m-ready")})): 0,
        (found.name, frozenset({("model", "org/a:b"), ("replica", "external:org/a:b:1")})): 1,
    }
    found = page(Totals(), "m-ready")["llmgw_breaker_open"]
    assert found.value(model="m", replica="m-ready") == 1


def test_what_a_card_does_not_report_is_left_out_and_zero_is_a_reading() -> None:
    found = page(Totals())
    whole = {"node": "n1", "gpu": "0", "class": "a"}
    assert found["llmgw_gpu_sm_active_percent"].value(**whole) == 0
    assert found["llmgw_gpu_throttled"].value(**whole) == 0
    assert found["llmgw_gpu_pcie_replays"].value(**whole) == 0
    assert found["llmgw_gpu_retired_pages"].value(**whole) == 3
    assert found["llmgw_gpu_nvlink_peers"].value(**whole) == 2
    assert found["llmgw_gpu_assigned"].value(**whole, model="m", replica="m-ready") == 1
    assert found["llmgw_replica_cpu_percent"].value(node="n1", model="m", replica="m-ready") == 250
    families = {name: family.samples for name, family in found.items() if name.startswith("llmgw_gpu_")}
    cards = {name: {dict(labels)["gpu"] for _, labels in samples} for name, samples in families.items()}
    # The MIG instance reports nothing: it is healthy, and that is all.
    assert {name for name, gpus in cards.items() if "1001" in gpus} == {"llmgw_gpu_healthy"}
    assert {len(found[name].samples) for name in cards if name != "llmgw_gpu_healthy"} == {1}


def test_what_goes_through_a_machine_is_on_the_page_and_its_ports_by_name() -> None:
    found = page(Totals())
    assert found["llmgw_node_network_receive_bytes_per_second"].value(node="n1") == 1e9
    assert found["llmgw_node_network_transmit_bytes_per_second"].value(node="n1") == 0
    assert found["llmgw_node_infiniband_transmit_bytes_per_second"].value(node="n1") == 3e10
    port = {"node": "n1", "kind": "infiniband", "port": "mlx5_0/1"}
    assert found["llmgw_node_port_errors"].value(**port) == 0
    assert found["llmgw_node_port_link_downs"].value(**port) == 2
    assert len(found["llmgw_node_port_errors"].samples) == 1


def test_no_name_breaks_the_page() -> None:
    found = page(totals_of(a_router(HOSTILE)))
    assert found["llmgw_requests_total"].value(model=HOSTILE, outcome="ok") == 1
    assert found["llmgw_inter_token_seconds"].value("_count", model=HOSTILE) == 3


def test_a_router_of_a_newer_kind_adds_no_labels_of_its_own() -> None:
    metrics = RouterMetrics()
    Account(metrics).hear(MeterReport(id="1", key_lookups={"hit": 1, "invented": 9}))
    found = page(metrics.totals())["llmgw_key_lookups_total"]
    assert {dict(labels)["result"] for _, labels in found.samples} == set(LOOKUPS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (2**62, str(2**62)),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_figures_read_back_as_they_are(value: float, text: str) -> None:
    assert figure(value) == text
    assert text == "NaN" or float(text) == value


def test_help_may_hold_anything() -> None:
    made = Page()
    made.gauges("a", "line\nbreak \\ and more", [({}, 1)])
    assert parse(made.text())["a"].doc == "line\\nbreak \\\\ and more"


def test_the_documentation_names_every_metric_with_its_kind_and_labels_and_nothing_else() -> None:
    found = page(totals_of(a_router()), "m-ready")
    real = {name: (family.kind, family.labels) for name, family in found.items()}
    rows = re.findall(r"^\| `(llmgw_\w+)` \| (\w+) \|([^|]*)\|", DOCUMENTED.read_text(), re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == real
    assert len(rows) == len(documented)
