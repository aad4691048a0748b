"""A figure as a question to Prometheus, in the names of the metrics page. Empty where that page has no such figure.

Two servers may show the same card while the lease moves: they are one card, by its node and index.
"""

from collections.abc import Callable, Mapping

from llmgw.api.series import Scope
from llmgw.control.history.series import Found
from llmgw.core.card_use import AT_WORK_PERCENT

LEAST_RATE_S = 150.0
"""Counters are looked at over this long at least: two samples of an exporter that is asked once a minute."""
_BY_CARD = "max by (node,gpu)"

_GAUGES: Mapping[str, str] = {
    "busy": "llmgw_gpu_utilization_percent",
    "temperature": "llmgw_gpu_temperature_celsius",
    "power": "llmgw_gpu_power_watts",
    "memory_temperature": "llmgw_gpu_memory_temperature_celsius",
    "clock": "llmgw_gpu_sm_clock_mhz",
    "tensor": "llmgw_gpu_tensor_active_percent",
    "dram": "llmgw_gpu_dram_active_percent",
    "occupancy": "llmgw_gpu_sm_occupancy_percent",
}
_TOGETHER: Mapping[str, str] = {
    "power": "sum",
    "power_cards": "count",
    "temperature": "max",
    "memory_temperature": "max",
}
"""Figure → what is made of those of several cards; of all others the mean."""
_NODES: Mapping[str, str] = {
    "cpu": "llmgw_node_cpu_utilization_percent",
    "load": "llmgw_node_load1",
    "cpu_temperature": "llmgw_node_cpu_temperature_celsius",
    "cpu_power": "llmgw_node_cpu_power_watts",
    "inlet": "llmgw_node_inlet_temperature_celsius",
}
_TRAFFIC_OF_NODES: Mapping[str, str] = {
    "network_in": "llmgw_node_network_receive_bytes_per_second",
    "network_out": "llmgw_node_network_transmit_bytes_per_second",
    "infiniband_in": "llmgw_node_infiniband_receive_bytes_per_second",
    "infiniband_out": "llmgw_node_infiniband_transmit_bytes_per_second",
}


def query(figure: str, found: Found, step_s: float) -> str:
    """What to ask for a figure of something, a point a step."""
    scope = found.of.scope
    span, rate = f"[{step_s:g}s]", f"[{max(step_s, LEAST_RATE_S):g}s]"
    if figure in _NODES or figure in _TRAFFIC_OF_NODES or figure == "host_memory":
        return _node(figure, _matching(node=found.name), span)
    if figure == "tokens_per_wh":
        made, drawn = query("output_tokens", found, step_s), query("power", found, step_s)
        return f"3600 * ({made}) / (({drawn}) > 0)"
    if figure in _TRAFFIC:
        # Requests that reached no model are the cluster's too.
        return _TRAFFIC[figure](_matching(model=found.name) if scope is Scope.MODEL else "", rate)
    if figure in ("open", "ready", "waiting", "kv"):
        return _counted(figure, scope, found, span)
    if figure.startswith("cards_"):
        return _cards_counted(figure, span)
    return _of_cards(figure, scope, found, span)


def _matching(**labels: str) -> str:
    """Labels in braces, whatever their values hold."""
    return "{" + ",".join(f"{name}={_quoted(value)}" for name, value in labels.items()) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _with(labels: str, more: str) -> str:
    return "{" + ",".join(part for part in (labels.strip("{}"), more) if part) + "}"


def _rate(metric: str) -> Callable[[str, str], str]:
    name, _, more = metric.partition("{")
    return lambda labels, rate: f"sum(rate({name}{_with(labels, more.rstrip('}'))}{rate}))"


def _quantile(share: str, metric: str) -> Callable[[str, str], str]:
    return lambda labels, rate: f"1000 * histogram_quantile({share}, sum by (le) (rate({metric}_bucket{labels}{rate})))"


_TRAFFIC: Mapping[str, Callable[[str, str], str]] = {
    "requests": _rate("llmgw_requests_total"),
    "errors": _rate('llmgw_requests_total{outcome=~"engine_error|unavailable"}'),
    "input_tokens": _rate('llmgw_tokens_total{kind="input"}'),
    "output_tokens": _rate('llmgw_tokens_total{kind="output"}'),
    "first_token_p50": _quantile("0.5", "llmgw_first_token_seconds"),
    "first_token_p95": _quantile("0.95", "llmgw_first_token_seconds"),
    "gap_p95": _quantile("0.95", "llmgw_inter_token_seconds"),
}


def _node(figure: str, labels: str, span: str) -> str:
    if figure == "host_memory":
        used = f"avg_over_time(llmgw_node_memory_used_bytes{labels}{span})"
        return f"max(100 * {used} / avg_over_time(llmgw_node_memory_bytes{labels}{span}))"
    if figure in _TRAFFIC_OF_NODES:
        return f"max(avg_over_time({_TRAFFIC_OF_NODES[figure]}{labels}{span})) / 1e6"
    return f"max(avg_over_time({_NODES[figure]}{labels}{span}))"


def _counted(figure: str, scope: Scope, found: Found, span: str) -> str:
    if figure == "open":
        return f"sum(avg_over_time(llmgw_router_open_requests{span}))" if scope is Scope.CLUSTER else ""
    model = _matching(model=found.name) if scope is Scope.MODEL else ""
    if figure == "waiting":
        return f"sum(max by (replica) (avg_over_time(llmgw_replica_waiting{model}{span})))"
    if figure == "kv":
        return f"100 * avg(max by (replica) (avg_over_time(llmgw_replica_kv_used_ratio{model}{span})))"
    labels = _matching(state="ready", **({"model": found.name} if scope is Scope.MODEL else {}))
    return f"sum(max by (model) (avg_over_time(llmgw_model_replicas{labels}{span})))"


def _cards_counted(figure: str, span: str) -> str:
    held = f"{_BY_CARD} (max_over_time(llmgw_gpu_assigned{span}))"
    healthy = f"{_BY_CARD} (min_over_time(llmgw_gpu_healthy{span}))"
    if figure == "cards_free":
        # A card without memory takes no work, as one that is split does, and nothing is placed on nodes not open.
        sized = f"{_BY_CARD} (max_over_time(llmgw_gpu_memory_total_bytes{span}))"
        opened = f"max by (node) (min_over_time(llmgw_node_open{span})) > 0"
        found = f"(({healthy} > 0) and on (node,gpu) {sized} and on (node) ({opened})) unless on (node,gpu) {held}"
    else:
        # Idle is what the console calls idle: hardly busy, and where that is not known, hardly at work.
        resting = f"(({_each('busy', '', span)} or {_each('work', '', span)}) < {AT_WORK_PERCENT:g})"
        found = f"{held} {'and' if figure == 'cards_idle' else 'unless'} on (node,gpu) {resting}"
    # Nothing to count is no answer at all: while there are cards it is none of them.
    return f"count({found}) or 0 * count({healthy})"


def _of_cards(figure: str, scope: Scope, found: Found, span: str) -> str:
    labels = ""
    if scope is Scope.NODE:
        labels = _matching(node=found.name)
    elif scope is Scope.CARD:
        labels = _matching(node=found.node, gpu=str(found.index))
    cards = _each("power" if figure == "power_cards" else figure, labels, span)
    if scope is Scope.MODEL:
        held = f"llmgw_gpu_assigned{_matching(model=found.name)}{span}"
        cards = f"{cards} and on (node,gpu) max_over_time({held})"
    return f"{_TOGETHER.get(figure, 'avg')}({cards})"


def _each(figure: str, labels: str, span: str) -> str:
    """A figure card by card."""

    def mean(metric: str) -> str:
        return f"{_BY_CARD} (avg_over_time({metric}{labels}{span}))"

    if figure == "memory":
        return f"(100 * {mean('llmgw_gpu_memory_used_bytes')} / {mean('llmgw_gpu_memory_total_bytes')})"
    if figure == "work":
        drawn, limit = f"({mean('llmgw_gpu_power_watts')} > 0)", f"({mean('llmgw_gpu_power_limit_watts')} > 0)"
        return f"({mean('llmgw_gpu_sm_active_percent')} or clamp_max(100 * {drawn} / {limit}, 100))"
    return mean(_GAUGES[figure])
