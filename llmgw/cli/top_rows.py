"""What `ctl top` shows of one state of the feed: models, nodes and cards, each with what it does. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from llmgw.api.card_uses import UNHEARD, uses_of_row
from llmgw.api.rows import FiguresRow, ModelRow, NodeRow, ReplicaRow, TrafficRow
from llmgw.api.watch import Delta, Message, Snapshot
from llmgw.cli.card_lines import CardLine, lines_of_rows
from llmgw.core.card_use import Efficiency, Use, by_model, efficiency

TOPICS = ("models", "replicas", "nodes", "figures", "traffic")
ORDERS = ("work", "power", "memory")
T = TypeVar("T", bound=msgspec.Struct)


class Feed:
    """The newest row of every topic, as they came. Its one writer calls `take` with every message."""

    def __init__(self) -> None:
        self.now = 0.0
        """The server's unix seconds."""
        self._rows: dict[str, dict[str, msgspec.Raw]] = {}

    def take(self, message: Message) -> None:
        """What a message says."""
        self.now = message.now
        if isinstance(message, Snapshot):
            self._rows = {topic: dict(rows) for topic, rows in message.rows.items()}
        elif isinstance(message, Delta):
            for topic, rows in message.rows.items():
                self._rows.setdefault(topic, {}).update(rows)
            for topic, keys in message.gone.items():
                for key in keys:
                    self._rows.get(topic, {}).pop(key, None)

    def rows(self, topic: str, type_: type[T]) -> dict[str, T]:
        """A topic's rows by key; one that cannot be read, a newer server's, is left out."""
        found: dict[str, T] = {}
        for key, document in self._rows.get(topic, {}).items():
            try:
                found[key] = msgspec.json.decode(document, type=type_)
            except msgspec.MsgspecError:
                continue
        return found


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One model: what it is asked, and what it gets from its cards."""

    model: str
    state: str
    ready: int
    wanted: int
    requests_per_s: float
    tokens_per_s: float
    """Output tokens; per card and per watt-hour below."""
    gpus: int = 0
    gpus_idle: int = 0
    work_percent: float | None = None
    busy_percent: float | None = None
    power_load_percent: float | None = None
    sm_active_percent: float | None = None
    memory_bytes: int = 0
    """What its replicas were promised."""
    power_w: float | None = None
    power_gpus: int = 0
    """Cards whose draw that is: those that report it."""
    tokens_per_gpu: float | None = None
    tokens_per_wh: float | None = None


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its processors, and its cards together."""

    node: str
    state: str
    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int = 0
    gpus: int = 0
    gpus_held: int = 0
    gpus_idle: int = 0
    work_percent: float | None = None
    gpu_memory_bytes: int | None = None
    """What is used of its cards' memory; null while none of them tells."""
    power_w: float | None = None
    power_gpus: int = 0
    """Cards whose draw that is: those that report it."""
    gpus_whole: int = 0
    """Cards that draw power of their own, as MIG instances do not."""
    problems: tuple[str, ...] = ()


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment."""

    at: float
    """The server's unix seconds."""
    models: tuple[ModelLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    cards: tuple[CardLine, ...] = ()


def top_of(feed: Feed, order: str) -> Top:
    """What there is, each list with the most of `order` (of ORDERS) first."""
    nodes, figures = feed.rows("nodes", NodeRow), feed.rows("figures", FiguresRow)
    replicas = feed.rows("replicas", ReplicaRow)
    models = {replica.id: replica.model for replica in replicas.values()}
    since = {replica.id: replica.since for replica in replicas.values()}
    uses = {name: uses_of_row(node, figures.get(name)) for name, node in nodes.items()}
    cards = [
        line for name, node in nodes.items() for line in lines_of_rows(node, figures.get(name), models, since, feed.now)
    ]
    of_node: dict[str, list[CardLine]] = {}
    for card in cards:
        of_node.setdefault(card.node, []).append(card)
    return Top(
        at=feed.now,
        models=_sorted(_models(feed, replicas, uses), order, MODEL_FIGURES, lambda line: line.model),
        nodes=_sorted(
            (_node(node, figures.get(name), of_node.get(name, []), uses[name]) for name, node in nodes.items()),
            order,
            NODE_FIGURES,
            lambda line: line.node,
        ),
        cards=_sorted(cards, order, CARD_FIGURES, lambda line: f"{line.node}\0{line.index:06d}"),
    )


MODEL_FIGURES: Mapping[str, Callable[[ModelLine], float | None]] = {
    "work": lambda line: line.work_percent,
    "power": lambda line: line.power_w,
    "memory": lambda line: line.memory_bytes,
}
NODE_FIGURES: Mapping[str, Callable[[NodeLine], float | None]] = {
    "work": lambda line: line.work_percent if line.gpus else line.cpu_percent,
    "power": lambda line: line.power_w,
    "memory": lambda line: line.gpu_memory_bytes or line.memory_used_bytes,
}
CARD_FIGURES: Mapping[str, Callable[[CardLine], float | None]] = {
    "work": lambda line: line.work_percent if line.work_percent is not None else line.busy_percent,
    "power": lambda line: line.power_w,
    "memory": lambda line: line.memory_used_bytes,
}


def _sorted(
    lines: Iterable[T], order: str, figures: Mapping[str, Callable[[T], float | None]], name: Callable[[T], str]
) -> tuple[T, ...]:
    """The most first; those that do not report last, and then by name."""
    figure = figures[order]

    def place(line: T) -> tuple[bool, float, str]:
        value = figure(line)
        return value is None, -(value or 0.0), name(line)

    return tuple(sorted(lines, key=place))


def _models(
    feed: Feed, replicas: Mapping[str, ReplicaRow], uses: Mapping[str, Mapping[str, Use]]
) -> Iterable[ModelLine]:
    traffic = feed.rows("traffic", TrafficRow)
    held = [
        (replica.model, use)
        for of_node in uses.values()
        for id_, use in of_node.items()
        if (replica := replicas.get(id_)) is not None
    ]
    sums = by_model(held)
    idle: dict[str, int] = {}
    for model, use in held:
        idle[model] = idle.get(model, 0) + len(use.idle)
    promised: dict[str, int] = {}
    for replica in replicas.values():
        promised[replica.model] = promised.get(replica.model, 0) + replica.memory_bytes
    for name, row in feed.rows("models", ModelRow).items():
        asked = traffic.get(name, TrafficRow())
        line = efficiency(name, sums.get(name, Use()), asked.output_tokens_per_s)
        yield _model(row, asked, line, idle.get(name, 0), promised.get(name, 0))


def _model(model: ModelRow, asked: TrafficRow, line: Efficiency, idle: int, promised: int) -> ModelLine:
    return ModelLine(
        model=model.name,
        state=model.state,
        ready=model.ready,
        wanted=model.wanted,
        requests_per_s=asked.requests_per_s,
        tokens_per_s=line.tokens_per_s,
        gpus=line.cards,
        gpus_idle=idle,
        work_percent=line.work,
        busy_percent=line.busy,
        power_load_percent=line.load,
        sm_active_percent=line.sm,
        memory_bytes=promised,
        power_w=line.draw_w,
        power_gpus=line.draw_cards,
        tokens_per_gpu=line.per_card if line.cards else None,
        tokens_per_wh=line.tokens_per_wh,
    )


def _node(node: NodeRow, figures: FiguresRow | None, cards: list[CardLine], uses: Mapping[str, Use]) -> NodeLine:
    figures = None if node.state in UNHEARD else figures
    free = figures.memory_available_bytes if figures else None
    work = [card.work_percent for card in cards if card.work_percent is not None]
    power = [card.power_w for card in cards if card.power_w is not None]
    used = [card.memory_used_bytes for card in cards if card.memory_used_bytes is not None]
    return NodeLine(
        node=node.name,
        state=node.state,
        cpu_percent=figures.cpu_percent if figures else None,
        load_1m=figures.load_1m if figures else None,
        memory_used_bytes=None if free is None else node.memory_total_bytes - free,
        memory_total_bytes=node.memory_total_bytes,
        gpus=len(cards),
        gpus_held=sum(use.cards for use in uses.values()),
        gpus_idle=sum(len(use.idle) for use in uses.values()),
        work_percent=sum(work) / len(work) if work else None,
        gpu_memory_bytes=sum(used) if used else None,
        power_w=sum(power) if power else None,
        power_gpus=len(power),
        gpus_whole=sum(not card.parent for card in node.cards),
        problems=node.problems,
    )
