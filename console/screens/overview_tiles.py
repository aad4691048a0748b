"""The figures at the head of the overview: a tile each, with its last minutes."""

from console.figures import count, percent, rate, watts
from console.signs import signs
from console.state.cards import heard_figures
from console.state.cluster import ALL
from console.state.loads import drawing_words
from console.widgets.columns import Seen
from console.widgets.paint import Span
from console.widgets.tiles import Tile
from llmgw.api.watch import TrafficRow


def tiles(seen: Seen, points: int) -> tuple[Tile, ...]:
    """The figures that matter at a glance; before any came, that there are none."""
    state, history = seen.state, seen.history
    if not state.heard:
        return tuple(Tile(name=name, figure=((signs().dash, "dim"),)) for name in _TILES)
    traffic = state.traffic.get(ALL) or TrafficRow()
    past = {name: tuple(history.traffic(name, points)) for name in ("requests", "tokens", "first_p95", "inter_p95")}
    errors = 100 * traffic.errors_per_s / traffic.requests_per_s if traffic.requests_per_s else 0.0
    load = state.load
    return (
        Tile(
            name="requests/s",
            figure=(
                (count(traffic.requests_per_s), "strong"),
                _errors(errors),
                (f"  {traffic.open_requests:,} open", "dim"),
            ),
            values=past["requests"],
        ),
        Tile(
            name="tokens/s",
            figure=(
                (count(traffic.output_tokens_per_s), "strong"),
                (f"  in {count(traffic.input_tokens_per_s)}", "dim"),
            ),
            values=past["tokens"],
        ),
        Tile(
            name="first token ms",
            figure=(
                ("p50 ", "dim"),
                _whole(traffic.first_token_p50_ms),
                ("  p95 ", "dim"),
                _whole(traffic.first_token_p95_ms),
            ),
            values=past["first_p95"],
        ),
        Tile(
            name="token gap ms",
            figure=(
                ("p50 ", "dim"),
                _whole(traffic.inter_token_p50_ms),
                ("  p95 ", "dim"),
                _whole(traffic.inter_token_p95_ms),
            ),
            values=past["inter_p95"],
        ),
        *_machines(seen, points, load.cards > 0),
    )


_TILES = ("requests/s", "tokens/s", "first token ms", "token gap ms", "GPUs", "power")


def _errors(share: float) -> Span:
    return (f"  {rate(share)} err", "bad" if share >= 1 else "dim") if share else ("  no errors", "dim")


def _whole(value: float | None) -> Span:
    return (signs().dash if value is None else f"{value:.0f}", "strong")


def _machines(seen: Seen, points: int, cards: bool) -> tuple[Tile, ...]:
    state, history = seen.state, seen.history
    load = state.load
    if cards:
        figure = (
            (f"{load.at_work:,} ", "strong"),
            ("work", "dim"),
            (f"  {load.idle:,} idle", "warn" if load.idle else "dim"),
            (f"  {load.free:,} free", "dim"),
        )
        return (
            Tile(name=f"{load.cards:,} GPUs", figure=figure, values=tuple(history.cluster("work", points)), top=100.0),
            Tile(
                name="power",
                figure=((watts(load.power_w), "strong"), *((words, "dim") for words in drawing_words(load))),
                values=tuple(history.cluster("power", points)),
            ),
        )
    busy = [row.cpu_percent for row in heard_figures(state) if row.cpu_percent is not None]
    mean = sum(busy) / len(busy) if busy else None
    cpus = sum(node.cpus for node in state.nodes.values())
    ready = sum(replica.state == "ready" for replica in state.replicas.values())
    values = history.node(next(iter(state.nodes)), "cpu") if len(state.nodes) == 1 else []
    return (
        Tile(
            name=f"{cpus:,} CPUs", figure=((percent(mean), "strong"), (" busy", "dim")), values=tuple(values), top=100.0
        ),
        Tile(name="replicas", figure=((str(ready), "strong"), (f" ready of {len(state.replicas)}", "dim"))),
    )
