"""All that is known of one card, or of a group of nodes, as lines: a name, a figure, and its last 15 minutes."""

from collections.abc import Iterable

from console.figures import pair, percent, plural, short_age, spark, watts
from console.signs import signs
from console.state.cards import COOL_C, TOP_C, CardAt, Mode, figures_of
from console.state.cluster import ClusterState
from console.state.folding import GroupLine
from console.text import clip, fit, plain, width
from console.widgets.columns import Seen
from console.widgets.gpu_cells import AIR, degrees, mode_figure
from console.widgets.lines import Line, wrap
from console.widgets.paint import Span

_WORK = " is the share of time the SMs had work where the counters are read, and power against its limit elsewhere."
_WORK_FROM = {"sm": "SMs active", "power": "power against its limit"}
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
    for name, spans in _about(seen, on):
        lines += _wrapped(name, spans, columns)
    lines.append([])
    return [*lines, *_charted(seen, on, columns)]


def short_card_lines(seen: Seen, on: CardAt, columns: int) -> list[Line]:
    """The same facts in two columns: what it is on the left, what it does on the right."""
    if columns < SIDE_BY_SIDE:
        return card_lines(seen, on, columns)
    left = (columns - 2) // 2
    about = [_cut(name, spans, left) for name, spans in _about(seen, on)]
    does = _charted(seen, on, columns - left - 2)
    deep = max(len(about), len(does))
    about += [[(" " * left, "")]] * (deep - len(about))
    does += [[]] * (deep - len(does))
    return [[*a, ("  ", ""), *b] for a, b in zip(about, does, strict=True)]


def _about(seen: Seen, on: CardAt) -> list[Named]:
    card, node = on.card, on.node
    facts: list[Named] = _holder(seen, on)
    facts.append(("node", [(node.name, "strong"), (f" {node.state}" if node.state != "connected" else "", "warn")]))
    worn = card.problem or "not healthy"
    facts.append(("wear", [("none", "good")] if card.healthy else [(f"{signs().warning} ", "bad"), (worn, "warn")]))
    facts.append(("class", [(card.gpu_class, ""), (f" {card.name}", "dim")]))
    facts.append(("UUID", [(card.uuid, "dim")]))
    if card.work_from in _WORK_FROM:
        facts.append(("work is", [(_WORK_FROM[card.work_from], "dim")]))
    if node.simulated:
        facts.append(("note", [("simulated: its sensors are made up", "warn")]))
    return facts


def _holder(seen: Seen, on: CardAt) -> list[Named]:
    if not on.card.replica:
        return [("model", [(signs().free, "unused"), (" no replica holds it", "dim")])]
    replica = seen.state.replicas.get(on.card.replica)
    if replica is None:
        return [("replica", [(on.card.replica, "strong"), (" not told of yet", "dim")])]
    ago = short_age(seen.now - replica.since)
    state = "" if replica.state == "ready" else "info" if replica.state != "failed" else "bad"
    several = f", {len(replica.cards)} cards" if len(replica.cards) > 1 else ""
    return [
        ("model", [(replica.model, "strong")]),
        ("replica", [(replica.id, ""), (f" {replica.state} {ago}", state or "dim"), (several, "dim")]),
    ]


def _charted(seen: Seen, on: CardAt, columns: int) -> list[Line]:
    name, place = on.node.name, on.place
    memory = pair(on.memory_used_bytes, on.card.memory_total_bytes)
    idle = [(f" {signs().warning} idle", "warn")] if on.idle and not on.stale else []
    rows: list[tuple[str, list[Span], str, float, float | None]] = [
        ("work", [(percent(on.work), "strong"), *idle], "work", 0.0, 100.0),
        ("busy", [(percent(on.busy), "")], "busy", 0.0, 100.0),
        ("memory", [(memory, "")], "memory", 0.0, 100.0),
        ("power", [(_power(on), "")], "power", 0.0, on.card.power_limit_w),
        ("heat", [(degrees(on.temperature), "")], "temperature", COOL_C - 10, TOP_C - COOL_C + 10),
    ]
    lines: list[Line] = []
    for title, spans, figure, floor, top in rows:
        line: Line = [(fit(title, NAME), "dim"), *_padded(spans, FIGURE)]
        room = columns - NAME - FIGURE
        if room >= LEAST_SPARK:
            samples = [value - floor for value in seen.history.card(name, place, figure)]
            full = top or max((value for value in samples if value == value), default=0.0)
            line.append((spark(samples, room, top=full * AIR if full > 0 else None), "spark"))
        lines.append(line)
    return lines


def _power(on: CardAt) -> str:
    """`239/260 W`: what it draws, and what its driver lets it draw."""
    if on.power is None or on.card.power_limit_w is None:
        return watts(on.power)
    return f"{on.power:.0f}/{on.card.power_limit_w:.0f} W"


def group_lines(state: ClusterState, group: GroupLine, columns: int) -> list[Line]:
    """What a folded group is made of."""
    nodes = len(group.nodes)
    facts: list[Named] = [
        ("nodes", [(f"{nodes:,}", "strong"), (f" of {plural(group.cards, 'card')} each, all {group.word}", "")]),
        ("class", [(group.gpu_class, "")]),
        ("names", [(", ".join(group.nodes[:6]), ""), (f" and {nodes - 6:,} more" if nodes > 6 else "", "dim")]),
    ]
    figures: dict[Mode, list[float]] = {mode: [] for mode in Mode}
    for name in group.nodes:
        for mode, known in figures.items():
            known += figures_of(state, name, mode)
    facts += [(mode.value[:NAME], _range(known, mode)) for mode, known in figures.items()]
    power = sum(state.node_load(name).power_w for name in group.nodes)
    facts.append(("power", [(watts(power), "")]))
    return [line for name, spans in facts for line in _wrapped(name, spans, columns)]


def _range(figures: list[float], mode: Mode) -> list[Span]:
    if not figures:
        return [(signs().dash, "dim")]
    mean = mode_figure(sum(figures) / len(figures), mode)
    return [(mean, "strong"), (f"  {mode_figure(min(figures), mode)} to {mode_figure(max(figures), mode)}", "dim")]


def meaning_lines() -> list[Line]:
    """What the words and signs mean."""
    return [
        [
            ("work", "strong"),
            (_WORK, "dim"),
        ],
        [("busy", "strong"), (" is the share of time any kernel ran, however little of the chip it used.", "dim")],
        [(f" {signs().free} ", "unused"), (" no replica holds it   ", "dim"), (" 35!", "worn"), (" worn", "dim")],
    ]


def _wrapped(name: str, spans: Iterable[Span], columns: int) -> list[Line]:
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
