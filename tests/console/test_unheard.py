"""Sums in the console are of nodes that speak, and say over how many cards they are."""

import math

import msgspec
import pytest

from console.places import Place, Subject
from console.screens.node_ports import port_spans, traffic_facts
from console.screens.overview_tiles import tiles
from console.state.cards import Mode, card_at, cards_of, figures_of
from console.state.cluster import ClusterState
from console.state.history import NODE_SAMPLE_S, History
from console.state.loads import NodeLoad, drawing_words, node_load, total_load
from console.state.monitored import values_of
from console.widgets.columns import Seen
from console.widgets.facts import fact_lines
from console.widgets.gpu_cells import mean_figure
from llmgw.api.actions import Target
from llmgw.api.rows import FiguresRow, NodeRow
from llmgw.api.series import CLUSTER, Of, Scope
from llmgw.core.cluster import MachinePart
from tests.console.harness import console_with, screen_text, shown, until
from tests.support.fleet_rows import NOW, figures_row, node_row, small_rows, snapshot

WORK = (80.0, 0.0, 40.0, 60.0)


def fleet(state: str) -> ClusterState:
    """The small fleet, of which `gpu01` (eight cards, all held) is in a state."""
    rows = small_rows()
    rows["nodes"]["gpu01"] = msgspec.structs.replace(rows["nodes"]["gpu01"], state=state)
    return ClusterState().apply(snapshot(rows), at=NOW)[0]


def test_a_silent_nodes_last_figures_are_in_no_sum() -> None:
    heard, silent = (node_row("n", 4, held={0: "r", 1: "r"}, state=state) for state in ("connected", "silent"))
    figures = figures_row(heard, WORK)
    before, after = node_load(heard, figures), node_load(silent, figures)
    assert (before.power_w, before.power_cards, before.whole) == (sum(figures.power_w), 4, 4)  # type: ignore[arg-type]
    assert (after.power_w, after.power_cards, after.whole) == (None, 0, 4)
    assert (after.mean_work_percent, after.memory_used_bytes, after.memory_total_bytes) == (None, 0, 0)
    assert (after.working, after.idle, after.unheard, after.at_work) == (2, 0, 2, 0)
    assert (before.unheard, before.at_work) == (0, before.working)
    together = total_load([before, after])
    assert (together.unheard, together.at_work) == (2, before.working)
    assert (together.power_w, together.power_cards, together.whole) == (before.power_w, 4, 8)
    assert total_load([after]).power_w is None
    assert total_load([]).power_w is None


def test_a_draw_says_over_how_many_cards_it_is() -> None:
    node = node_row("n", 3)
    partial = msgspec.structs.replace(figures_row(node, WORK[:3]), power_w=(100.0, None, 50.0))
    load = node_load(node, partial)
    assert (load.power_w, drawing_words(load)) == (150.0, ("  2/3", " GPUs"))
    assert drawing_words(node_load(node, figures_row(node, WORK[:3]))) == ()
    assert drawing_words(NodeLoad(whole=8)) == ()
    instance = msgspec.structs.replace(node.cards[2], parent=node.cards[0].uuid)
    split = msgspec.structs.replace(node, cards=(*node.cards[:2], instance))
    assert node_load(split, msgspec.structs.replace(partial, power_w=(100.0, 50.0, None))).whole == 2


def test_the_overview_the_map_and_monitor_leave_it_out() -> None:
    heard, lost = fleet("connected"), fleet("lost")
    drawn = heard.node_load("gpu01").power_w
    assert drawn
    assert values_of(lost, CLUSTER)["power"] == values_of(heard, CLUSTER)["power"] - drawn  # type: ignore[operator]
    assert set(values_of(lost, Of(Scope.NODE, "gpu01")).values()) == {None}
    tile = tiles(Seen(state=lost, history=History(), now=NOW), 10)[-1]
    text = "".join(words for words, _ in tile.figure)
    assert text.endswith(f"W  {lost.load.power_cards}/{lost.load.whole} GPUs")
    assert lost.load.whole - lost.load.power_cards == 8
    assert figures_of(lost, "gpu01", Mode.WORK) == []
    assert mean_figure(cards_of(lost, "gpu01"), Mode.WORK) is None
    assert len(figures_of(heard, "gpu01", Mode.WORK)) == 8


def test_a_card_is_free_when_it_takes_work_whatever_else_there_is_to_say_of_it() -> None:
    node = node_row("n", 3)
    shared = msgspec.structs.replace(node.cards[0], unified=True, problem="Its memory is the node's own.")
    split = msgspec.structs.replace(node.cards[1], memory_total_bytes=None, problem="The card is split.")
    cards = (shared, split, node.cards[2])
    for state, free in (("connected", 2), ("cordoned", 0), ("lost", 0)):
        row = msgspec.structs.replace(node, cards=cards, state=state)
        assert node_load(row, figures_row(node, WORK[:3])).free == free


def test_nobody_calls_a_card_idle_whose_node_is_not_heard() -> None:
    for state, idle in (("connected", True), ("silent", False)):
        rows = small_rows()
        node = rows["nodes"]["gpu01"]
        assert isinstance(node, NodeRow)
        rows["nodes"]["gpu01"] = msgspec.structs.replace(node, state=state)
        rows["figures"]["gpu01"] = figures_row(node, (0.0,) * 8)
        found = card_at(ClusterState().apply(snapshot(rows), at=NOW)[0], "gpu01", 0)
        assert found is not None
        assert found.idle is idle


def test_a_line_stops_where_its_node_did() -> None:
    history = History()
    for number, state in enumerate(("connected", "silent", "connected")):
        history.record(fleet(state), NOW + number * NODE_SAMPLE_S)
    before, silent, after = history.node("gpu01", "power")
    assert before == after
    assert math.isnan(silent)
    assert math.isnan(history.card("gpu01", 0, "work")[1])
    assert math.isnan(history.node("gpu01", "cpu")[1])


class TestPorts:
    def test_what_goes_through_is_said_where_it_is_told(self) -> None:
        told = FiguresRow(heard=0.0, network_in_bytes_per_s=1.2e9, network_out_bytes_per_s=0.0)
        (line,) = fact_lines(traffic_facts(told), 80)
        assert "".join(text for text, _ in line).split() == ["network", "1.2", "GB/s", "in", "0", "B/s", "out"]
        assert fact_lines(traffic_facts(None), 80) == []

    def test_a_port_that_is_down_or_loses_packets_stands_out(self) -> None:
        parts = (
            MachinePart(kind="disk", name="nvme0n1"),
            MachinePart(kind="network", name="eth0", state="up", rate_bps=100 * 10**9, errors=0),
            MachinePart(kind="infiniband", name="mlx5_0/1", state="down", errors=1200, link_downs=3),
        )
        spans = port_spans(parts)
        assert "".join(text for text, _ in spans) == "eth0 up 100 Gb/s  mlx5_0/1 down  1,200 errors, link down 3×  "
        assert [tone for _, tone in spans] == ["", "dim", "", "warn", "warn"]
        assert port_spans(()) == []

    @pytest.mark.asyncio
    @pytest.mark.parametrize("ascii_only", [False, True])
    async def test_a_nodes_page_has_both(self, ascii_only: bool) -> None:
        rows = small_rows()
        part = MachinePart(kind="network", name="eth[0]", state="up", rate_bps=25 * 10**9, link_downs=3)
        rows["nodes"]["gpu01"] = msgspec.structs.replace(rows["nodes"]["gpu01"], parts=(part,))
        rows["figures"]["gpu01"] = msgspec.structs.replace(rows["figures"]["gpu01"], network_in_bytes_per_s=1.2e9)
        console = console_with(snapshot(rows), start="nodes", ascii_only=ascii_only)
        async with shown(console, size=(200, 60)):
            console.go(Place(view="node", subject=Subject(target=Target.NODE, key="gpu01")))
            await until(lambda: "1.2 GB/s in" in screen_text(console))
            text = " ".join(screen_text(console).split())
            assert f"ports eth[0] up 25 Gb/s link down 3{'x' if ascii_only else '×'}" in text
            assert "InfiniBand" not in text

    def test_monitor_has_them_as_the_server_does(self) -> None:
        rows = small_rows()
        figures = rows["figures"]["gpu01"]
        rows["figures"]["gpu01"] = msgspec.structs.replace(figures, infiniband_out_bytes_per_s=2.5e10)
        state = ClusterState().apply(snapshot(rows), at=NOW)[0]
        found = values_of(state, Of(Scope.NODE, "gpu01"))
        assert (found["infiniband_out"], found["network_in"]) == (25_000.0, None)
