"""The pictures' models: the catalog, replicas, traffic and weights."""

import msgspec

from llmgw.api.types import ProgressInfo
from llmgw.api.watch import ALL_MODELS, ModelRow, ReplicaRow, TrafficRow, WeightsRow
from llmgw.core.catalog import Model
from llmgw.core.external import External
from llmgw.core.prices import Prices
from tests.console.showcase_names import BAD_MODEL, BROKEN, COMING, HELD, MODEL
from tests.support.fleet_rows import GB, NOW, card_uuid, model_row, replica_row


def models() -> dict[str, ModelRow]:
    """A model in every state."""
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


def replicas() -> dict[str, ReplicaRow]:
    """Those that answer, those that do not yet, and those that do no more."""
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


def traffic(wave: float) -> dict[str, TrafficRow]:
    """Of every model, and of all; `wave` as for figures."""
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


def weights() -> dict[str, WeightsRow]:
    """A set in every state."""
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
