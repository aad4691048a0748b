"""All that is told of one card, as lines: what it is and who holds it, what it does, and its last 15 minutes."""

from collections.abc import Callable, Iterable

from console.figures import pair, percent, short_age, size, spark, watts
from console.signs import signs
from console.state.cards import COOL_C, TOP_C, CardAt
from console.state.unheard import ago
from console.text import clip, fit, plain, width
from console.widgets.columns import Seen
from console.widgets.gpu_cells import AIR, THROTTLE_MARK, degrees
from console.widgets.lines import Line, wrap
from console.widgets.paint import Span
from llmgw.core import throttle

WORK_FROM = {"sm": "SMs active", "power": "power against its limit"}
"""What a card's work is read from, as the feed says it → in words."""
NAME = 8
"""Columns of a fact's name."""
FIGURE = 13
"""Columns of a figure beside its sparkline."""
LEAST_SPARK = 8
SIDE_BY_SIDE = 72
"""Facts stand in two columns from this width on, where height is scarce."""

Named = tuple[str, list[Span]]


def card_lines(seen: Seen, on: CardAt, columns: int) -> list[Line]:
    """One fact below the other, charts beside the figures."""
    lines: list[Line] = []
    for name, spans in about(seen, on):
        lines += wrapped(name, spans, columns)
    lines.append([])
    return [*lines, *_does(seen, on, columns, wrapped)]


def short_card_lines(seen: Seen, on: CardAt, columns: int, rows: int) -> list[Line]:
    """The same facts in two columns, what it is on the left and what it does on the right, in so many rows at most."""
    if columns < SIDE_BY_SIDE:
        return card_lines(seen, on, columns)[:rows]
    left = (columns - 2) // 2
    facts = [_cut(name, spans, left) for name, spans in about(seen, on)][:rows]
    does = _does(seen, on, columns - left - 2, lambda *fact: [_cut(*fact)])[:rows]
    deep = max(len(facts), len(does))
    facts += [[(" " * left, "")]] * (deep - len(facts))
    does += [[]] * (deep - len(does))
    return [[*a, ("  ", ""), *b] for a, b in zip(facts, does, strict=True)]


def about(seen: Seen, on: CardAt) -> list[Named]:
    """What the card is, who holds it and what is wrong with it; what matters most comes first."""
    card, node = on.card, on.node
    facts: list[Named] = _holder(seen, on)
    facts.append(("node", [(node.name, "strong"), (f" {node.state}" if node.state != "connected" else "", "warn")]))
    facts += _health(on)
    facts.append(("class", [(card.gpu_class, ""), (f" {card.name}", "dim")]))
    links = _links(on)
    facts += [("links", [(links, "")])] if links else []
    if card.work_from in WORK_FROM and not card.parent:
        facts.append(("work is", [(WORK_FROM[card.work_from], "dim")]))
    facts.append(("UUID", [(card.uuid, "dim")]))
    if node.simulated:
        facts.append(("note", [("simulated: its sensors are made up", "warn")]))
    return facts


def _health(on: CardAt) -> list[Named]:
    card = on.card
    facts: list[Named] = []
    if not card.healthy:
        facts.append(("trouble", [(f"{signs().warning} ", "bad"), (card.problem or "not healthy", "bad")]))
    elif card.problem:
        facts.append(("note", [(card.problem, "dim")]))
    for sentence in card.wear:
        facts.append(("wear", [(f"{signs().warning} ", "bad"), (sentence, "warn")]))
    if card.healthy and not card.wear:
        facts.append(("wear", [("none", "good")]))
    if card.parent:
        whole = next((other for other in on.node.cards if other.uuid == card.parent), None)
        of = f"GPU {whole.index}" if whole is not None else card.parent
        facts.append(("MIG", [(card.mig_profile or "instance", "strong"), (f" of {of}", "dim")]))
    words = () if on.stale else throttle.words(on.throttle)
    if words:
        held = "slowed" if on.held_back else "clocks"
        facts.append((held, [("; ".join(words), "warn" if on.held_back else "dim")]))
    return facts


def _links(on: CardAt) -> str:
    """`NVLink to 7, PCIe 5 x16, NUMA 1`: what it is reached by."""
    card = on.card
    found: list[str] = []
    if card.nvlink_peers is not None:
        found.append(f"NVLink to {card.nvlink_peers}" if card.nvlink_peers else "no NVLink")
    if card.pcie_generation is not None:
        lanes = f" x{card.pcie_width}" if card.pcie_width is not None else ""
        found.append(f"PCIe {card.pcie_generation}{lanes}")
    if card.numa_node is not None:
        found.append(f"NUMA {card.numa_node}")
    if card.unified:
        found.append("memory is the node's own")
    return ", ".join(found)


def _holder(seen: Seen, on: CardAt) -> list[Named]:
    if not on.card.replica:
        told = " its instances are held one by one" if on.split else " no replica holds it"
        return [("model", [(signs().free, "unused"), (told, "dim")])]
    replica = seen.state.replicas.get(on.card.replica)
    if replica is None:
        return [("replica", [(on.card.replica, "strong"), (" not told of yet", "dim")])]
    ago = short_age(seen.now - replica.since)
    state = "" if replica.state == "ready" else "info" if replica.state != "failed" else "bad"
    several = f", {len(replica.cards)} cards" if len(replica.cards) > 1 else ""
    return [
        ("model", [(replica.model, "strong")]),
        ("replica", [(replica.id, ""), (f" {replica.state} {ago}{several}", state or "dim")]),
    ]


def _does(
    seen: Seen, on: CardAt, columns: int, laid_out: Callable[[str, Iterable[Span], int], list[Line]]
) -> list[Line]:
    """Figures with their past, then those without one, each only where it is told; `laid_out` places the latter."""
    told = ago(seen.state, on.node.name, seen.now)
    lines = laid_out("figures", [(f"of {told}, not heard since", "warn")], columns) if told else []
    lines += [_charted(seen, on, columns, *row) for row in _rows(on)]
    for name, text in (
        ("profile", _profile(on)),
        ("clock", "" if on.clock_mhz is None else f"{on.clock_mhz:,.0f} MHz"),
        ("engine", _engine(on)),
    ):
        if text:
            lines += laid_out(name, [(text, "dim" if on.stale else "")], columns)
    return lines


Row = tuple[str, list[Span], str, float, float | None]
"""Name, figure, the samples' name, the bottom of their scale, and its height where that is known."""


def _rows(on: CardAt) -> list[Row]:
    idle: list[Span] = [(f" {signs().warning} idle", "warn")] if on.idle else []
    held: list[Span] = [(f" {THROTTLE_MARK} held", "warn")] if on.held_back else []
    heat: list[Span] = [(degrees(on.temperature), "")]
    if on.memory_temperature is not None:
        heat.append((f" mem {degrees(on.memory_temperature)}", "dim"))
    memory: Row = ("memory", [(pair(on.memory_used_bytes, on.card.memory_total_bytes), "")], "memory", 0.0, 100.0)
    warmth: Row = ("heat", heat, "temperature", COOL_C - 10, TOP_C - COOL_C + 10)
    if on.card.parent:
        # An instance has its own memory and its card's heat; what its card does is not its doing alone.
        return [memory, warmth]
    return [
        ("work", [(percent(on.work), "strong"), *(held or idle)], "work", 0.0, 100.0),
        ("busy", [(percent(on.busy), "")], "busy", 0.0, 100.0),
        memory,
        ("power", [(_power(on), "")], "power", 0.0, on.card.power_limit_w),
        warmth,
    ]


def _charted(
    seen: Seen, on: CardAt, columns: int, title: str, spans: list[Span], figure: str, floor: float, top: float | None
) -> Line:
    said = [(text, "dim") for text, _ in spans] if on.stale else spans
    line: Line = [(fit(title, NAME), "dim"), *_padded(said, FIGURE)]
    room = columns - NAME - FIGURE
    if room >= LEAST_SPARK:
        samples = [value - floor for value in seen.history.card(on.node.name, on.place, figure)]
        full = top or max((value for value in samples if value == value), default=0.0)
        line.append((spark(samples, room, top=full * AIR if full > 0 else None), "spark"))
    return line


def _profile(on: CardAt) -> str:
    """`SM 61% tensor 31% DRAM 62% warps 44%`: what parts of the chip do, where that is counted."""
    parts = (("SM", on.sm), ("tensor", on.tensor), ("DRAM", on.dram), ("warps", on.occupancy))
    if all(value is None for _, value in parts[1:]):
        return ""
    return " ".join(f"{name} {percent(value)}" for name, value in parts if value is not None)


def _engine(on: CardAt) -> str:
    """What the engine that holds it takes of its node."""
    figures, replica = on.figures, on.card.replica
    if figures is None or not replica:
        return ""
    cpu, memory = figures.engine_cpu_percent.get(replica), figures.engine_memory_bytes.get(replica)
    told = [f"{cpu / 100:.1f} CPUs"] if cpu is not None else []
    return ", ".join([*told, f"{size(memory)} of the node"] if memory is not None else told)


def _power(on: CardAt) -> str:
    """`239/260 W`: what it draws, and what its driver lets it draw."""
    if on.power is None or on.card.power_limit_w is None:
        return watts(on.power)
    return f"{on.power:.0f}/{on.card.power_limit_w:.0f} W"


def wrapped(name: str, spans: Iterable[Span], columns: int) -> list[Line]:
    """A fact in as many lines as it takes, its name on the first."""
    rows = wrap([span for span in spans if span[0]], max(1, columns - NAME))
    return [[(fit(name if not number else "", NAME), "dim"), *row] for number, row in enumerate(rows)]


def _cut(name: str, spans: Iterable[Span], columns: int) -> Line:
    return [(fit(name, NAME), "dim"), *_padded(spans, columns - NAME)]


def _padded(spans: Iterable[Span], columns: int) -> Line:
    line: Line = []
    left = columns
    for text, tone in spans:
        shown = clip(plain(text), left)
        if shown:
            line.append((shown, tone))
            left -= width(shown)
    return [*line, (" " * max(0, left), "")]
