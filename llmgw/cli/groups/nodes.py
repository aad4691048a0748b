"""`ctl nodes` and `ctl node show|cordon|uncordon|sample`."""

from collections.abc import Sequence

from llmgw.api.card_uses import UNHEARD
from llmgw.api.types import CardInfo, NodeInfo
from llmgw.cli.card_lines import HEADERS, cells, lines_of_node, memory
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import duration, size
from llmgw.cli.output import Output
from llmgw.core.cluster import MachinePart


def nodes(ctx: Context) -> None:
    """Every node, a line each, or with --gpus every card."""
    answer = ctx.client.nodes()
    if ctx.args.gpus:
        _gpus(ctx, answer)
    elif ctx.out.json:
        ctx.out.document(answer)
    else:
        node_table(ctx.out, answer)


def _gpus(ctx: Context, answer: Sequence[NodeInfo]) -> None:
    models = {replica.id: replica.model for replica in ctx.client.replicas()}
    lines = [line for node in answer for line in lines_of_node(node, models)]
    if ctx.out.json:
        ctx.out.document(lines)
    else:
        ctx.out.table(HEADERS, [cells(line) for line in lines], empty="no node has a GPU")


def node_table(out: Output, answer: Sequence[NodeInfo], *, apart: bool = False) -> None:
    """A line a node."""
    rows = [
        [
            node.name + (" (simulated)" if node.simulated else ""),
            node.state,
            duration(node.heartbeat_age_s),
            str(node.cpus),
            memory(_used(node.memory_total_bytes, _heard(node, node.memory_available_bytes)), node.memory_total_bytes),
            _cards(node),
            " ".join(engine.engine for engine in node.engines if engine.usable) or "none",
            "; ".join(node.problems),
        ]
        for node in answer
    ]
    headers = ["NODE", "STATE", "HEARD", "CPUS", "MEMORY", "CARDS", "ENGINES", "PROBLEMS"]
    out.table(headers, rows, empty="no node has joined: `llmgw ctl join-token` tells how", apart=apart)


def _heard(node: NodeInfo, value: int) -> int | None:
    """A figure of the node's; none where it is of before, or 0, which is not told."""
    return None if node.state in UNHEARD else value or None


def _used(total: int, free: int | None) -> int | None:
    return None if free is None else total - free


def _cards(node: NodeInfo) -> str:
    classes = [card.gpu_class or card.name for card in node.cards]
    return " ".join(f"{classes.count(name)}×{name}" for name in dict.fromkeys(classes)) or "-"


def show(ctx: Context) -> None:
    """One node in full."""
    node = ctx.client.node(ctx.args.node)
    if ctx.out.json:
        ctx.out.document(node)
        return
    ago = f"{duration(node.heartbeat_age_s)} ago" if node.state in UNHEARD else ""
    ctx.out.facts(
        [
            ("node", node.name + (" (simulated)" if node.simulated else "")),
            ("state", f"{node.state}, heard {duration(node.heartbeat_age_s)} ago"),
            ("address", node.address),
            ("agent", f"{node.agent_version} (pid {node.agent_pid})" if node.agent_pid else node.agent_version),
            ("cpu", f"{node.cpus} × {node.cpu_model or 'CPU'}"),
            ("load", _said("" if node.load_1m is None else f"{node.load_1m:.2f}", ago)),
            ("memory", _said(_free(node.memory_available_bytes or None, node.memory_total_bytes), ago)),
            ("reserved", size(node.memory_reserved_bytes)),
            ("disk", _said(_free(_disk_free(node), node.disk_total_bytes), ago)),
            ("network", _said(_through(node.network_in_bytes_per_s, node.network_out_bytes_per_s), ago)),
            ("infiniband", _said(_through(node.infiniband_in_bytes_per_s, node.infiniband_out_bytes_per_s), ago)),
        ]
    )
    for problem in node.problems:
        ctx.out.line(f"! {problem}")
    engines = [[e.engine, e.version, "yes" if e.usable else "no", e.why_not or e.installing] for e in node.engines]
    ctx.out.table(["ENGINE", "VERSION", "USABLE", "NOTE"], engines, empty="no engine can start there", apart=True)
    old = bool(ago and node.cards)
    if old:
        ctx.out.gap()
        ctx.out.line(f"! figures of its cards are of {ago}: the node is {node.state}")
    headers = ["CARD", "NAME", "CLASS", "MEMORY", "BUSY", "TEMP", "POWER", "REPLICA", "PROBLEM"]
    ctx.out.table(headers, [_card(card) for card in node.cards], apart=not old)
    ports = [_port(part) for part in node.parts if part.kind != "disk"]
    if ports:
        ctx.out.table(["PORT", "KIND", "STATE", "RATE", "ERRORS", "LINK DOWN"], ports, apart=True)


def _said(words: str, ago: str) -> str:
    """What a node says of itself, with how long ago that was where it is not heard now."""
    return f"{words}, {ago}" if words and ago else words


def _free(free: int | None, total: int) -> str:
    """`40 GB free of 64 GB`."""
    return f"{size(total)}, what is free is not told" if free is None else f"{size(free)} free of {size(total)}"


def _disk_free(node: NodeInfo) -> int | None:
    """None where there is no disk, or nothing was measured yet: else 0 is a full one."""
    measured = node.load_1m is not None or node.disk_free_bytes
    return node.disk_free_bytes if node.disk_total_bytes and measured else None


def _through(into: float | None, out: float | None) -> str:
    """`in 1.2 GB/s, out 340 MB/s`, of all ports; empty where neither is told."""
    ways = (("in", into), ("out", out))
    return ", ".join(f"{way} {size(round(value))}/s" for way, value in ways if value is not None)


def _port(part: MachinePart) -> list[str]:
    return [
        part.name,
        part.kind,
        part.state or "-",
        f"{part.rate_bps / 10**9:g} Gb/s" if part.rate_bps else "-",
        "-" if part.errors is None else str(part.errors),
        "-" if part.link_downs is None else f"{part.link_downs}×",
    ]


def _card(card: CardInfo) -> list[str]:
    return [
        str(card.index),
        card.name,
        card.gpu_class,
        memory(card.memory_used_bytes, card.memory_total_bytes),
        "-" if card.utilization_percent is None else f"{card.utilization_percent:.0f}%",
        "-" if card.temperature_c is None else f"{card.temperature_c:.0f} °C",
        "-" if card.power_w is None else f"{card.power_w:.0f} W",
        card.replica or "-",
        card.problem or "; ".join(sentence.rstrip(".") for sentence in card.wear_problems),
    ]


def cordon(ctx: Context) -> None:
    """Keep new replicas off a node."""
    result = ctx.client.cordon(ctx.args.node, True)
    ctx.done(result, result.message)


def uncordon(ctx: Context) -> None:
    """Allow new replicas on a node again."""
    result = ctx.client.cordon(ctx.args.node, False)
    ctx.done(result, result.message)


def sample(ctx: Context) -> None:
    """Have a node measure now."""
    result = ctx.client.sample(ctx.args.node)
    ctx.done(result, result.message)


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("nodes",): nodes,
    ("node", "show"): show,
    ("node", "cordon"): cordon,
    ("node", "uncordon"): uncordon,
    ("node", "sample"): sample,
}
