"""All about one machine, with its cards; on a machine without any, its replicas are in the facts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from console.figures import count, pair, percent, plural, watts
from console.places import Subject
from console.screens.node_ports import port_spans, traffic_facts
from console.screens.nodes import heard_cell
from console.screens.page import Chart, Page
from console.screens.replica import CARDS, CardOn, cards_on
from console.screens.states import aged, state_cell
from console.state.cards import Mode, cards_of
from console.state.cluster import ClusterState
from console.state.loads import drawing_words
from console.state.unheard import ago, is_unheard
from console.widgets.columns import Seen, TableSpec
from console.widgets.facts import Fact
from console.widgets.gpu_cells import cell
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.types import EngineInfo
from llmgw.api.watch import NodeRow

MAX_CELLS = 8
"""Cards in the line of facts; the table has all of them."""


class NodePage(Page[CardOn]):
    """Hardware, load, engines and cards."""

    NOUN: ClassVar[str] = "cards"
    ROW_TARGET: ClassVar[Target] = Target.REPLICA
    EMPTY: ClassVar[str] = "no card: replicas here run on the processors"

    def table_spec(self) -> TableSpec[CardOn]:
        """Cards."""
        return CARDS

    def rows(self, seen: Seen) -> Mapping[str, CardOn]:
        """Its cards."""
        return cards_on(seen.state.nodes[self.place.key], seen)

    def facts(self, seen: Seen) -> list[Fact]:
        """From its agent."""
        node = seen.state.nodes[self.place.key]
        figures = seen.state.figures.get(node.name)
        free = figures.memory_available_bytes if figures else None
        disk = figures.disk_free_bytes if figures else None
        held = seen.state.replicas_on(node.name)
        # A node that is not heard said this so long ago.
        told = ago(seen.state, node.name, seen.now)
        memory = pair(node.memory_total_bytes - free if free is not None else None, node.memory_total_bytes)
        room = pair(node.disk_total_bytes - disk if disk is not None else None, node.disk_total_bytes)
        return [
            ("state", [*state_cell(node.state), ("  heard ", "dim"), heard_cell(node, seen), (" ago", "dim")]),
            ("simulated", ("yes: its sensors are made up" if node.simulated else "", "warn")),
            ("problems", ("; ".join(node.problems), "warn")),
            ("address", (node.address, "")),
            ("agent", [(node.agent_version, ""), (f"  pid {node.agent_pid}", "dim")]),
            ("processors", [(f"{node.cpus} × ", ""), (node.cpu_model, "")]),
            (
                "cpu",
                aged(
                    [
                        (percent(figures.cpu_percent if figures else None), "strong"),
                        _load(figures.load_1m if figures else None),
                    ],
                    told,
                ),
            ),
            ("memory", aged([(memory, "")], told)),
            ("reserved", (pair(node.memory_reserved_bytes, node.memory_total_bytes), "")),
            ("disk", aged([(room, "")], told)),
            *traffic_facts(figures, told),
            ("ports", port_spans(node.parts)),
            ("card by card", _cells(seen.state, node, told)),
            ("engines", _engines(node.engines)),
            ("replicas", [(plural(len(held), "replica"), "strong"), (_names(r.model for r in held), "dim")]),
        ]

    def charts(self, seen: Seen) -> list[Chart]:
        """Its last quarter of an hour."""
        name, load = self.place.key, seen.state.node_load(self.place.key)
        figures = None if is_unheard(seen.state, name) else seen.state.figures.get(name)
        cpu = percent(figures.cpu_percent if figures else None)
        charts: list[Chart] = [("cpu", cpu, seen.history.node(name, "cpu"), 100.0)]
        if load.cards:
            charts += [
                ("GPU work", percent(load.mean_work_percent), seen.history.node(name, "work"), 100.0),
                (
                    "power",
                    "".join((watts(load.power_w), *drawing_words(load)[:1])),
                    seen.history.node(name, "power"),
                    None,
                ),
            ]
        return charts

    def looked_at(self) -> str:
        """The node, while it is there."""
        return self.place.key if self._there else ""

    def leads_on(self, key: str) -> bool:
        """A free card leads nowhere."""
        on = self._rows.get(key)
        return on is not None and bool(on.card.replica)

    def open_row(self, key: str) -> None:
        """The replica that holds the card."""
        self.open_subject(Subject(target=Target.REPLICA, key=self._rows[key].card.replica or ""))


def _cells(state: ClusterState, node: NodeRow, ago: str) -> list[Span]:
    spans: list[Span] = []
    for on in list(cards_of(state, node.name))[:MAX_CELLS]:
        spans += [cell(on, Mode.WORK), (" ", "")]
    more = len(node.cards) - MAX_CELLS
    spans += [(f"+{more}", "dim")] if more > 0 else []
    return [*spans, (ago, "dim")] if spans else spans


def _load(load: float | None) -> Span:
    return (f"  load {count(load)}", "dim")


def _engines(engines: tuple[EngineInfo, ...]) -> list[Span]:
    spans: list[Span] = []
    for engine in engines:
        spans += [(f"{engine.engine} {engine.version}  ", "" if engine.usable else "warn")]
        note = engine.installing if engine.usable else engine.why_not
        spans += [(f"{note}  ", "dim")] if note else []
    return spans or [("none", "warn")]


def _names(names: Iterable[str]) -> str:
    counted = Counter(names)
    return "  " + ", ".join(f"{name} {number}×" if number > 1 else name for name, number in counted.items())
