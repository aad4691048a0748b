"""The cluster the pictures are of: 12 machines of 8 cards with a model in every state, and the same on a bad day.

Nothing is drawn by chance and no clock is read, so that the same picture comes out every time.
"""

import math
from collections.abc import Callable

import msgspec

from console.screens.usage_rows import total
from console.state.store import Link, Store
from llmgw.api.types import Explanation, ProgressInfo, UsageInfo
from llmgw.api.watch import (
    ALL_MODELS,
    AuditRow,
    CardRow,
    ClusterRow,
    Delta,
    FiguresRow,
    KeyRow,
    ModelRow,
    NodeRow,
    ReplicaRow,
    ScopeRow,
    Snapshot,
    TrafficRow,
    WeightsRow,
    scope_key,
)
from llmgw.core.card_use import AT_WORK_PERCENT
from llmgw.core.catalog import Model
from llmgw.core.external import External
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from llmgw.core.prices import Prices
from llmgw.core.throttle import POWER_CAP, READ, SW_THERMAL
from llmgw.core.verdicts import CardVerdict, NodeVerdict
from tests.support.fleet_rows import (
    GB,
    NOW,
    Rows,
    card_uuid,
    cluster_row,
    delta,
    figures_row,
    model_row,
    node_row,
    replica_row,
    snapshot,
)

CARDS = 8
STEP_S = 2.0
STEPS = 450
"""A quarter of an hour of samples."""
FIGURES_EVERY = 5
"""Cards report every so many steps."""
MODEL = "qwen3-coder-30b"
REPLICA = "qwen3-coder-30b-7c21"
NODE = "gpu04"
BAD_MODEL = "glm-5.2-air"
HOSTILE_NODE = "rack[/]9"
HOSTILE_MODEL = "[@click=app.quit]m[/]"
CLASSES = {"gpu07": "a100-80g", "gpu08": "a100-80g", "gpu09": "l40s-48g", "gpu10": "l40s-48g", "gpu11": "l40s-48g"}
WORN = {"gpu09": (6,)}
FELL_OFF = "Xid 79: the card has fallen off the bus; reseat or replace it."
WEARING = {("gpu04", 1): ("A bad memory row waits to be replaced by a spare: reset the card or restart the node.",)}
"""Cards that work and wear out."""
LIMITS_W = {"h100-80g": 700.0, "a100-80g": 400.0, "l40s-48g": 350.0}
COUNTED = ("h100-80g",)
"""Classes whose drivers count what parts of the chip do."""
HELD_BACK = {("gpu03", 0): POWER_CAP, ("gpu07", 5): SW_THERMAL}
"""Cards that heat or power holds back."""
SPLIT = ("gpu08", 6, "a100-80g-mig-3g.40gb")
"""A card with one MIG instance, which stands in the place after it."""
BROKEN = {"qwen3-coder-30b-33f1": "open", "qwen2.5-7b-d805": "half-open"}
"""Replicas that routers keep requests from."""
BREAKER_OPEN = (
    "replica qwen3-coder-30b-33f1 of model qwen3-coder-30b: breaker open on 1 of 2 routers, last failure: status 503"
)
HELD: tuple[tuple[str, str, str, int, int, float], ...] = (
    # replica, model, node, first card, cards, work
    ("llama-3.3-70b-1f02", "llama-3.3-70b", "gpu01", 0, 4, 78.0),
    ("llama-3.3-70b-9b11", "llama-3.3-70b", "gpu01", 4, 4, 71.0),
    ("llama-3.3-70b-c4d0", "llama-3.3-70b", "gpu02", 0, 4, 64.0),
    ("llama-3.3-70b-e7a5", "llama-3.3-70b", "gpu02", 4, 4, 82.0),
    (REPLICA, MODEL, "gpu03", 0, 2, 91.0),
    ("qwen3-coder-30b-0d44", MODEL, "gpu03", 2, 2, 55.0),
    ("qwen3-coder-30b-a9e8", MODEL, "gpu03", 4, 2, 47.0),
    ("qwen3-coder-30b-33f1", MODEL, "gpu04", 0, 2, 38.0),
    ("old-llama-20aa", "old-llama", "gpu04", 2, 2, 0.0),
    ("old-llama-5e0c", "old-llama", "gpu04", 4, 2, 1.0),
    ("qwen2.5-7b-81b0", "qwen2.5-7b", "gpu09", 0, 1, 66.0),
    ("qwen2.5-7b-4c7d", "qwen2.5-7b", "gpu09", 1, 1, 59.0),
    ("qwen2.5-7b-f2e6", "qwen2.5-7b", "gpu09", 2, 1, 72.0),
    ("qwen2.5-7b-6a39", "qwen2.5-7b", "gpu10", 0, 1, 18.0),
    ("qwen2.5-7b-bb17", "qwen2.5-7b", "gpu10", 1, 1, 69.0),
    ("qwen2.5-7b-d805", "qwen2.5-7b", "gpu10", 2, 1, 44.0),
    ("embed-m3-07aa", "embed-m3", "gpu08", 7, 1, 12.0),
    ("mistral-large-c901", "mistral-large", "gpu07", 0, 8, 35.0),
)
"""Replicas that answer."""
COMING: tuple[tuple[str, str, str, int, int, str, float], ...] = (
    # replica, model, node, first card, cards, state, seconds in it
    ("glm-5.2-51c2", "glm-5.2", "gpu05", 0, 8, "fetching", 95.0),
    ("glm-5.2-88d1", "glm-5.2", "gpu06", 0, 8, "checking", 12.0),
    ("deepseek-r2-distill-2e90", "deepseek-r2-distill", "gpu08", 0, 4, "starting", 43.0),
    ("old-llama-77f3", "old-llama", "gpu08", 4, 2, "draining", 21.0),
    ("phi-5-mini-19ce", "phi-5-mini", "gpu11", 0, 1, "failed", 240.0),
)
"""Replicas that do not answer yet, or no more."""


def rows() -> dict[str, dict[str, msgspec.Struct]]:
    """A normal day."""
    nodes = _nodes()
    return {
        "cluster": {
            "cluster": msgspec.structs.replace(
                cluster_row(), client_url="http://gpu01.lab:8080", problems=(BREAKER_OPEN,)
            )
        },
        "models": dict(_models()),
        "replicas": dict(_replicas()),
        "nodes": dict(nodes),
        "figures": {name: _figures(node, 1.0) for name, node in nodes.items()},
        "traffic": dict(_traffic(1.0)),
        "weights": dict(_weights()),
        "keys": dict(_keys()),
        "scopes": dict(_scopes()),
        "audit": dict(_audit()),
    }


def _nodes() -> dict[str, NodeRow]:
    held: dict[str, dict[int, str]] = {}
    places = [row[:5] for row in HELD] + [row[:5] for row in COMING]
    for id_, _, node, first, cards in places:
        held.setdefault(node, {}).update(dict.fromkeys(range(first, first + cards), id_))
    found = {}
    for number in range(1, 13):
        name = f"gpu{number:02d}"
        state = {"gpu11": "cordoned", "gpu12": "silent"}.get(name, "connected")
        gpu_class = CLASSES.get(name, "h100-80g")
        row = node_row(name, CARDS, gpu_class=gpu_class, held=held.get(name), worn=WORN.get(name, ()), state=state)
        problems = ("the clock is 3.2 s off",) if name == "gpu08" else ()
        told = tuple(_card(name, card) for card in row.cards)
        found[name] = msgspec.structs.replace(row, problems=problems, cards=told)
    return found


def _card(node: str, card: CardRow) -> CardRow:
    """With what a driver tells of it besides its name."""
    limit = LIMITS_W[card.gpu_class]
    told = msgspec.structs.replace(
        card,
        problem=FELL_OFF if not card.healthy else "",
        wear=WEARING.get((node, card.index), ()),
        power_limit_w=limit,
        work_from="sm" if card.gpu_class in COUNTED else "power",
        pcie_generation=5 if card.gpu_class == "h100-80g" else 4,
        pcie_width=16,
        numa_node=card.index // 4,
        nvlink_peers=0 if card.gpu_class == "l40s-48g" else CARDS - 1,
    )
    split_node, place, instance = SPLIT
    if node != split_node or card.index not in (place, place + 1):
        return told
    if card.index == place:
        words = "The card is split into MIG instances; the instances take work, the card does not."
        return msgspec.structs.replace(told, problem=words, memory_total_bytes=None)
    profile = instance.partition("mig-")[2]
    return CardRow(
        uuid=card.uuid,
        index=1000 * (place + 1) + 2,
        name=f"{card.name} MIG {profile}",
        gpu_class=instance,
        memory_total_bytes=40 * GB,
        replica=card.replica,
        parent=card_uuid(node, place),
        mig_profile=profile,
    )


def _models() -> dict[str, ModelRow]:
    short = "cannot be placed: needs 8 × h100-80g free on one node; gpu04 has 2 free and 14.2 GB are missing on each"
    ended = "the engine ended with signal 9 while loading; 3 tries, the next in 4 min"
    made = (
        model_row("llama-3.3-70b", ready=4, wanted=4),
        model_row(MODEL, ready=4, wanted=4),
        model_row("qwen2.5-7b", ready=6, wanted=6),
        model_row("old-llama", ready=2, wanted=2),
        model_row("embed-m3", ready=1, wanted=1),
        model_row("mistral-large", ready=1, wanted=2, state="partial", message="1 of 2: waits for 8 × a100-80g"),
        model_row("glm-5.2", "fetching", ready=0, wanted=2),
        model_row("deepseek-r2-distill", "starting", ready=0, wanted=1),
        model_row(BAD_MODEL, "pending", ready=0, wanted=1, message=short),
        model_row("phi-5-mini", "failed", ready=0, wanted=1, message=ended),
        model_row("mixtral-8x22b", "stopped", ready=0, wanted=0),
        _outside(),
    )
    return {row.name: _priced(row) for row in made}


def _outside() -> ModelRow:
    """A model that somebody else serves."""
    endpoint = External(
        base_url="https://api.provider.example/v1", model="large-2", api_keys_file="/etc/llmgw/provider.keys"
    )
    return ModelRow(
        name="frontier-large",
        state="ready",
        ready=1,
        wanted=1,
        source=endpoint.base_url,
        spec=Model(name="frontier-large", external=(endpoint,)),
        created=NOW - 500_000,
        changed=NOW - 400_000,
    )


def _priced(row: ModelRow) -> ModelRow:
    price, cost = {
        "llama-3.3-70b": (Prices(input=0.6, cached_input=0.3, output=2.4), 61_210_000),
        MODEL: (Prices(input=0.2, output=0.8), 9_040_000),
        "qwen2.5-7b": (Prices(input=0.05, output=0.2), 14_800_000),
        "mistral-large": (Prices(input=0.9, output=2.7), 2_210_000),
        "frontier-large": (Prices(input=3.0, cached_input=0.75, output=15.0), 28_310_000),
    }.get(row.name, (None, 0))
    return msgspec.structs.replace(row, spec=msgspec.structs.replace(row.spec, prices=price), cost_today_micros=cost)


def _replicas() -> dict[str, ReplicaRow]:
    found = {}
    for place, (id_, model, node, first, cards, work) in enumerate(HELD):
        uuids = tuple(card_uuid(node, index) for index in range(first, first + cards))
        since_s = 1_800.0 * (place + 1)
        row = replica_row(id_, model, node, cards=uuids, since_s=since_s, in_flight=round(work / 9))
        found[id_] = msgspec.structs.replace(row, breaker=BROKEN.get(id_, ""))
    for id_, model, node, first, cards, state, since_s in COMING:
        uuids = tuple(card_uuid(node, index) for index in range(first, first + cards))
        done = {"fetching": 115, "checking": 75}.get(state)
        progress = ProgressInfo(phase=state, done_bytes=done * GB, total_bytes=188 * GB) if done else None
        message = {"failed": "the engine ended with signal 9 while loading", "starting": "loading layer 31 of 80"}
        found[id_] = replica_row(
            id_,
            model,
            node,
            state,
            since_s=since_s,
            cards=uuids,
            progress=progress,
            message=message.get(state, ""),
            in_flight=12 if state == "draining" else 0,
        )
    return found


def _figures(node: NodeRow, wave: float) -> FiguresRow:
    work = [0.0] * len(node.cards)
    for _, _, name, first, cards, mean in HELD:
        if name == node.name:
            for index in range(first, first + cards):
                work[index] = min(99.0, mean * wave + (index * 7) % 5)
    heard_s = {"gpu12": 38.0, "gpu08": 4.2}.get(node.name, 1.4)
    return _told(node, work, figures_row(node, tuple(work), heard_s=heard_s))


def _told(node: NodeRow, work: list[float], row: FiguresRow) -> FiguresRow:
    """With each share of its limit, its parts, its rest and what holds it back; an instance has its memory alone."""
    whole = [not card.parent and card.memory_total_bytes is not None and card.healthy for card in node.cards]
    counted = node.cards[0].gpu_class in COUNTED
    held = [id_ for id_ in dict.fromkeys(card.replica for card in node.cards) if id_]

    def column(value: Callable[[int], float], *, only: bool = True) -> tuple[float | None, ...]:
        return tuple(value(place) if whole[place] and only else None for place in range(len(work)))

    power = column(lambda place: (node.cards[place].power_limit_w or 0.0) * (0.14 + 0.0078 * work[place]))
    return msgspec.structs.replace(
        row,
        memory_used_bytes=tuple(
            None if card.memory_total_bytes is None or not card.healthy else used
            for card, used in zip(node.cards, row.memory_used_bytes, strict=True)
        ),
        utilization_percent=column(lambda place: min(100.0, work[place] * 1.4)),
        work_percent=column(lambda place: work[place] if counted else 14.0 + 0.78 * work[place]),
        power_w=power,
        temperature_c=tuple(
            value if card.healthy else None for card, value in zip(node.cards, row.temperature_c, strict=True)
        ),
        memory_temperature_c=column(lambda place: 44.0 + work[place] / 2.4, only=counted),
        sm_clock_mhz=column(lambda place: 1980.0 if work[place] else 345.0),
        sm_occupancy_percent=column(lambda place: work[place] * 0.42, only=counted),
        tensor_active_percent=column(lambda place: work[place] * 0.31, only=counted),
        dram_active_percent=column(lambda place: work[place] * 0.68, only=counted),
        throttle_reasons=tuple(
            READ | HELD_BACK.get((node.name, place), 0) if whole[place] else 0 for place in range(len(work))
        ),
        resting_since=tuple(
            NOW - 18_400.0 if whole[place] and work[place] < AT_WORK_PERCENT else None for place in range(len(work))
        ),
        engine_cpu_percent={id_: 140.0 + 10 * len(id_) for id_ in held},
        engine_memory_bytes={id_: (4 + len(id_) % 5) * GB for id_ in held},
    )


def _traffic(wave: float) -> dict[str, TrafficRow]:
    shares = {
        "llama-3.3-70b": (42.0, 3_900.0, 610.0),
        MODEL: (80.0, 6_500.0, 440.0),
        "qwen2.5-7b": (290.0, 18_000.0, 190.0),
        "embed-m3": (65.0, 0.0, 35.0),
        "mistral-large": (3.1, 240.0, 1_900.0),
        "frontier-large": (1.2, 96.0, 820.0),
    }
    found = {
        name: TrafficRow(
            requests_per_s=requests * wave,
            errors_per_s=requests * wave / 5_000,
            input_tokens_per_s=tokens * 2.1 * wave,
            output_tokens_per_s=tokens * wave,
            first_token_p50_ms=first * 0.4,
            first_token_p95_ms=first * (0.6 + 0.4 * wave),
            inter_token_p50_ms=first / 22,
            inter_token_p95_ms=first / 12 * (0.7 + 0.3 * wave),
            open_requests=round(requests * wave / 3),
        )
        for name, (requests, tokens, first) in shares.items()
    }
    found["old-llama"] = TrafficRow()
    found[ALL_MODELS] = TrafficRow(
        requests_per_s=sum(row.requests_per_s for row in found.values()),
        errors_per_s=sum(row.errors_per_s for row in found.values()),
        input_tokens_per_s=sum(row.input_tokens_per_s for row in found.values()),
        output_tokens_per_s=sum(row.output_tokens_per_s for row in found.values()),
        first_token_p50_ms=180.0 * (0.6 + 0.4 * wave),
        first_token_p95_ms=610.0 * (0.6 + 0.4 * wave),
        inter_token_p50_ms=14.0,
        inter_token_p95_ms=41.0 * (0.7 + 0.3 * wave),
        open_requests=sum(row.open_requests for row in found.values()),
    )
    return found


def _weights() -> dict[str, WeightsRow]:
    made = (
        WeightsRow(
            source="hf:org/glm-5.2",
            id="w1",
            state="fetching",
            done_bytes=115 * GB,
            total_bytes=188 * GB,
            files=42,
            models=("glm-5.2", BAD_MODEL),
            revision="9f2c1ab04477de10",
        ),
        WeightsRow(
            source="hf:org/llama-3.3-70b",
            id="w2",
            state="ready",
            done_bytes=141 * GB,
            total_bytes=141 * GB,
            files=30,
            models=("llama-3.3-70b",),
            revision="6f6073b423013f6a",
        ),
        WeightsRow(
            source="hf:org/qwen3-coder-30b:Q4_K_M.gguf",
            id="w3",
            state="checking",
            done_bytes=18 * GB,
            total_bytes=18_600_000_000,
            files=1,
            models=(MODEL,),
        ),
        WeightsRow(
            source="hf:org/phi-5-mini",
            id="w4",
            state="failed",
            done_bytes=1_100_000_000,
            total_bytes=7_600_000_000,
            files=6,
            message="model-00002.safetensors: the hub gave other bytes twice; tried again in 4 min",
            models=("phi-5-mini",),
        ),
        WeightsRow(
            source="hf:org/mixtral-8x22b", id="w5", state="ready", done_bytes=281 * GB, total_bytes=281 * GB, files=59
        ),
        WeightsRow(source="https://files.lab/embed-m3.gguf", id="w6", state="resolving", models=("embed-m3",)),
    )
    return {row.source: row for row in made}


def _keys() -> dict[str, KeyRow]:
    made = (
        KeyRow(
            id="key-1",
            name="ci",
            created=NOW - 9_000_000,
            last_used=NOW - 4,
            requests=1_204_000,
            input_tokens=2_400_000_000,
            output_tokens=310_000_000,
            team="platform",
            limits=Limits(rpm=600, parallel=32),
            cost_micros=4_812_000_000,
            spent_day_micros=18_400_000,
            spent_month_micros=402_120_000,
        ),
        KeyRow(
            id="key-2",
            name="chat-frontend",
            models=("llama-3.3-70b", "qwen2.5-7b"),
            team="assistants",
            limits=Limits(rpm=3_000, tpm=2_000_000, parallel=64),
            budgets=(
                Budget(amount_micros=40_000_000, period=Period.DAY),
                Budget(amount_micros=500_000_000, period=Period.MONTH),
            ),
            cost_micros=1_204_550_000,
            spent_day_micros=12_400_000,
            spent_month_micros=466_300_000,
            created=NOW - 2_400_000,
            last_used=NOW - 0.6,
            requests=88_412,
            input_tokens=91_000_000,
            output_tokens=40_500_000,
        ),
        KeyRow(id="key-3", name="notebook-anna", models=(MODEL,), created=NOW - 90_000),
        KeyRow(
            id="key-5",
            name="evals-nightly",
            team="research",
            limits=Limits(tpm=5_000_000),
            budgets=(Budget(amount_micros=50_000_000, period=Period.MONTH),),
            created=NOW - 800_000,
            last_used=NOW - 3_700,
            requests=41_200,
            input_tokens=310_000_000,
            output_tokens=22_000_000,
            cost_micros=71_040_000,
            spent_day_micros=0,
            spent_month_micros=12_400_000,
        ),
        KeyRow(
            id="key-6",
            name="thesis-björn",
            team="research",
            limits=Limits(rpm=60, tpm=100_000, parallel=4),
            budgets=(Budget(amount_micros=5_000_000, period=Period.DAY),),
            created=NOW - 400_000,
            last_used=NOW - 42,
            requests=9_020,
            input_tokens=7_900_000,
            output_tokens=1_400_000,
            cost_micros=19_000_000,
            spent_day_micros=5_000_400,
            spent_month_micros=11_700_000,
        ),
        KeyRow(
            id="key-7",
            name="acme-web",
            team="acme-prod",
            limits=Limits(rpm=1_200),
            created=NOW - 3_000_000,
            last_used=NOW - 9,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            cost_micros=310_000_000,
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
        ),
        KeyRow(
            id="key-4",
            name="leaked-in-march",
            created=NOW - 7_000_000,
            revoked=NOW - 6_000_000,
            last_used=NOW - 6_000_100,
            requests=310,
            input_tokens=40_000,
            output_tokens=9_000,
        ),
    )
    return {row.id: row for row in made}


def _scopes() -> dict[str, ScopeRow]:
    made = (
        ScopeRow(
            kind=ScopeKind.TENANT,
            name="acme",
            budgets=(Budget(amount_micros=100_000_000, period=Period.MONTH),),
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
            cost_micros=310_000_000,
            keys=1,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            created=NOW - 3_100_000,
        ),
        ScopeRow(
            kind=ScopeKind.TENANT,
            name="in-house",
            limits=Limits(rpm=12_000, tpm=20_000_000),
            spent_day_micros=35_800_400,
            spent_month_micros=892_520_000,
            cost_micros=6_106_590_000,
            keys=4,
            requests=1_342_632,
            input_tokens=2_808_900_000,
            output_tokens=373_900_000,
            created=NOW - 9_100_000,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="acme-prod",
            tenant="acme",
            limits=Limits(parallel=40),
            keys=1,
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
            cost_micros=310_000_000,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            created=NOW - 3_000_500,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="assistants",
            tenant="in-house",
            keys=1,
            budgets=(Budget(amount_micros=2_000_000_000, period=Period.MONTH),),
            spent_day_micros=12_400_000,
            spent_month_micros=466_300_000,
            cost_micros=1_204_550_000,
            requests=88_412,
            input_tokens=91_000_000,
            output_tokens=40_500_000,
            created=NOW - 2_400_100,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="platform",
            tenant="in-house",
            keys=1,
            limits=Limits(rpm=6_000),
            spent_day_micros=18_400_000,
            spent_month_micros=402_120_000,
            cost_micros=4_812_000_000,
            requests=1_204_000,
            input_tokens=2_400_000_000,
            output_tokens=310_000_000,
            created=NOW - 9_050_000,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="research",
            tenant="in-house",
            keys=2,
            limits=Limits(tpm=6_000_000, parallel=24),
            budgets=(Budget(amount_micros=200_000_000, period=Period.MONTH),),
            spent_day_micros=5_000_400,
            spent_month_micros=24_100_000,
            cost_micros=90_040_000,
            requests=50_220,
            input_tokens=317_900_000,
            output_tokens=23_400_000,
            created=NOW - 800_100,
        ),
        ScopeRow(kind=ScopeKind.TEAM, name="interns", created=NOW - 40_000, limits=Limits(rpm=30)),
    )
    return {scope_key(row.kind, row.name): row for row in made}


USED = tuple(
    UsageInfo(
        key_id=key,
        model=model,
        requests=requests,
        input_tokens=read,
        cached_tokens=read // 3,
        output_tokens=written,
        cost_micros=cost,
        failed=failed,
    )
    for key, model, requests, read, written, cost, failed in (
        ("key-1", "qwen2.5-7b", 310_400, 610_000_000, 81_000_000, 112_020_000, 12),
        ("key-1", "llama-3.3-70b", 91_000, 190_000_000, 31_000_000, 290_100_000, 0),
        ("key-2", "llama-3.3-70b", 61_220, 70_000_000, 31_000_000, 410_200_000, 3),
        ("key-2", "qwen2.5-7b", 20_010, 21_000_000, 9_500_000, 56_100_000, 0),
        ("key-5", MODEL, 6_120, 48_000_000, 3_100_000, 12_400_000, 0),
        ("key-6", MODEL, 2_410, 2_600_000, 500_000, 7_200_000, 41),
        ("key-6", "embed-m3", 3_900, 1_900_000, 0, 4_500_000, 0),
        ("key-7", "mistral-large", 71_300, 60_000_000, 20_300_000, 100_000_000, 7),
        ("key-0", "old-llama", 12, 9_000, 800, 2_100, 0),
    )
)
"""What was used this month, by key and model; `key-0` is not known any more."""


def used(by: str) -> list[UsageInfo]:
    """`USED` as the server sums it."""
    teams = {key.id: key.team or "" for key in _keys().values()}
    tenants = {row.name: row.tenant or "" for row in _scopes().values()}
    names: dict[str, Callable[[UsageInfo], dict[str, str]]] = {
        "key": lambda row: {"key_id": row.key_id},
        "model": lambda row: {"model": row.model},
        "team": lambda row: {"team": teams.get(row.key_id, "")},
        "tenant": lambda row: {"tenant": tenants.get(teams.get(row.key_id, ""), "")},
        "key_model": lambda row: {"key_id": row.key_id, "model": row.model},
    }
    groups: dict[tuple[str, ...], list[UsageInfo]] = {}
    for row in USED:
        groups.setdefault(tuple(names[by](row).values()), []).append(row)
    return [total(rows, **names[by](rows[0])) for rows in groups.values()]


def _audit() -> dict[str, AuditRow]:
    scaling = {"scaling": {"min": 2, "max": 4}, "stopped": False}
    made = (
        AuditRow(
            id=214,
            at=NOW - 95,
            actor="unix:anna",
            action="model.add",
            target="glm-5.2",
            after={"name": "glm-5.2", "source": "hf:org/glm-5.2", "profiles": [{"name": "main", "tp": 8}]},
        ),
        AuditRow(
            id=213,
            at=NOW - 1_240,
            actor="unix:anna",
            action="model.scale",
            target=MODEL,
            before=scaling,
            after={"scaling": {"min": 4, "max": 4}, "stopped": False},
        ),
        AuditRow(
            id=212,
            at=NOW - 3_020,
            actor="token:ops",
            action="node.cordon",
            target="gpu11",
            before={"cordoned": False},
            after={"cordoned": True},
        ),
        AuditRow(
            id=211,
            at=NOW - 86_000,
            actor="token:ops",
            action="key.create",
            target="notebook-anna",
            after={"name": "notebook-anna", "models": [MODEL]},
        ),
        AuditRow(
            id=210,
            at=NOW - 91_000,
            actor="unix:ops",
            action="model.stop",
            target="mixtral-8x22b",
            before={"stopped": False},
            after={"stopped": True},
        ),
    )
    return {str(row.id): row for row in made}


def bad_rows() -> dict[str, dict[str, msgspec.Struct]]:
    """The same cluster without a leader, half of it gone, cards worn, some names out to do harm."""
    found = rows()
    head = found["cluster"]["cluster"]
    assert isinstance(head, ClusterRow)
    problems = (
        "no control plane leads: nothing is placed, started or stopped until one does",
        "the database answers after 4.1 s",
        "the certificate of gpu03 ends in 2 days",
    )
    found["cluster"] = {"cluster": msgspec.structs.replace(head, leader=None, problems=problems)}
    for number, name in enumerate(found["nodes"]):
        node = found["nodes"][name]
        assert isinstance(node, NodeRow)
        state = ("lost", "silent", "connected")[number % 3]
        problem = "Xid 79: the card has fallen off the bus"
        cards = tuple(
            msgspec.structs.replace(card, healthy=card.index != 3, problem=problem if card.index == 3 else "")
            for card in node.cards
        )
        found["nodes"][name] = msgspec.structs.replace(node, state=state, cards=cards)
    found["nodes"][HOSTILE_NODE] = node_row(HOSTILE_NODE, 2, worn=(0,), problems=("\x1b[2J[@click=app.quit]x[/]",))
    message = 'reply [1, "3" then [b + z \u202e漢字'
    found["models"][HOSTILE_MODEL] = model_row(HOSTILE_MODEL, "failed", ready=0, message=message)
    for name, model in found["models"].items():
        assert isinstance(model, ModelRow)
        if model.state == "ready":
            found["models"][name] = msgspec.structs.replace(model, state="partial", ready=max(0, model.ready - 2))
    for id_, replica in list(found["replicas"].items())[::3]:
        assert isinstance(replica, ReplicaRow)
        failed = "CUDA error: an illegal memory access was encountered"
        found["replicas"][id_] = msgspec.structs.replace(replica, state="failed", message=failed, restarts=3)
    for source, weights in found["weights"].items():
        assert isinstance(weights, WeightsRow)
        full = "no space left on the mirror: 73 GB are missing"
        found["weights"][source] = msgspec.structs.replace(weights, state="failed", message=full)
    for name, traffic in found["traffic"].items():
        assert isinstance(traffic, TrafficRow)
        failing = min(9.5, traffic.requests_per_s / 2)
        found["traffic"][name] = msgspec.structs.replace(traffic, errors_per_s=failing)
    return found


def day(last: Rows) -> list[Snapshot | Delta]:
    """A quarter of an hour that ends with `last` at NOW, traffic and cards in gentle waves."""
    nodes = {name: node for name, node in last["nodes"].items() if isinstance(node, NodeRow)}
    messages: list[Snapshot | Delta] = [snapshot(last, now=NOW - STEP_S * (STEPS + 1))]
    for step in range(STEPS):
        wave = 1 + 0.3 * math.sin(step / 31) + 0.12 * math.sin(step / 7) + 0.05 * math.sin(step * 1.9)
        changed: dict[str, dict[str, msgspec.Struct]] = {"traffic": dict(_traffic(wave))}
        if step % FIGURES_EVERY == 0:
            changed["figures"] = {name: _figures(node, wave) for name, node in nodes.items()}
        messages.append(delta(changed, rev=2 + step, now=NOW - STEP_S * (STEPS - step)))
    return [*messages, delta({"figures": last["figures"], "traffic": last["traffic"]}, rev=2 + STEPS, now=NOW)]


def live_store(last: Rows) -> Store:
    """A store that heard `day(last)`."""
    store = Store()
    for message in day(last):
        store.receive(message, at=message.now)
    store.set_link(Link(state="live", since=NOW - 900, latency_s=0.002))
    return store


def explanation() -> Explanation:
    """Why `BAD_MODEL` is nowhere."""
    need = 71 * GB

    def cards(node: str, used: int, missing: int) -> tuple[CardVerdict, ...]:
        return tuple(
            CardVerdict(
                uuid=card_uuid(node, index),
                index=index,
                name="NVIDIA H100",
                fits=index >= used,
                rule="memory" if index < used else "",
                missing_bytes=missing if index < used else 0,
                message="" if index >= used else f"needs 71 GB, {71 - missing // GB} GB free",
            )
            for index in range(CARDS)
        )

    return Explanation(
        model=BAD_MODEL,
        dry_run=False,
        message=f"{BAD_MODEL} cannot be placed: 8 cards of one node are needed, and gpu04 comes nearest",
        need_bytes=8 * need,
        need_detail="weights 376 GB + KV 171 GB (16 × 32,768 tokens) + engine 21 GB, over 8 cards",
        verdicts=(
            NodeVerdict(
                node="gpu04",
                profile="main",
                fits=False,
                rule="memory",
                missing_bytes=14_200_000_000,
                message="2 of 8 cards have room",
                cards=cards("gpu04", 6, 14 * GB),
            ),
            NodeVerdict(
                node="gpu01",
                profile="main",
                fits=False,
                rule="memory",
                missing_bytes=61 * GB,
                message="all 8 cards are held by llama-3.3-70b",
            ),
            NodeVerdict(node="gpu07", profile="main", fits=False, rule="class", message="a100-80g is not h100-80g"),
            NodeVerdict(node="gpu11", profile="main", fits=False, rule="cordoned", message="cordoned by token:ops"),
            NodeVerdict(node="gpu12", profile="main", fits=False, rule="link", message="silent for 38 s"),
        ),
    )


def fitting(name: str) -> Explanation:
    """Where a model that is asked about before it is served would go."""
    need = 58 * GB

    def refused(node: str, rule: str, message: str, missing: int = 0) -> NodeVerdict:
        return NodeVerdict(node=node, profile="main", fits=False, rule=rule, missing_bytes=missing, message=message)

    return Explanation(
        model=name,
        dry_run=True,
        would_place="gpu04",
        message=f"{name} goes to gpu04",
        need_bytes=need,
        need_detail="weights 38 GB + KV 18 GB (4 × 32,768 tokens) + engine 2 GB",
        verdicts=(
            NodeVerdict(node="gpu04", profile="main", fits=True, message="fits: 58 GB on card 6"),
            NodeVerdict(node="gpu03", profile="main", fits=True, message="fits: 58 GB on card 6"),
            refused("gpu01", "memory", "all 8 cards are held by llama-3.3-70b", 38 * GB),
            refused("gpu09", "memory", "l40s-48g has 48 GB a card", 10 * GB),
            refused("gpu11", "cordoned", "cordoned by token:ops"),
            refused("gpu12", "link", "silent for 38 s"),
        ),
    )


LOG = tuple(
    line.encode()
    for line in (
        "llama-server: version b6900 on CUDA 12.8, 2 devices",
        "load_model: loading /srv/llmgw/weights/w3/Q4_K_M.gguf",
        *(f"load_tensors: layer {layer:2d} assigned to device CUDA{layer % 2}" for layer in range(0, 48, 3)),
        "llama_context: n_ctx = 131072, n_seq_max = 4, kv cache 12.9 GiB",
        "warn: the chat template of the file is used; --jinja is on",
        "srv  init: listening on 127.0.0.1:9001, 4 slots",
        "slot 2: prompt eval 1842 tokens in 411 ms, 4482 tokens/s",
        "slot 2: eval 512 tokens in 6120 ms, 83.7 tokens/s",
        "error: slot 0: client closed the connection after 118 tokens",
        "markup [/] and [@click=app.quit]quit[/] stay text; so does \x1b[31mred",
        "slot 1: prompt eval 96 tokens in 31 ms, 3097 tokens/s",
    )
)
