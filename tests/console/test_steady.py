"""The maps of GPUs and Overview: what reads the same is not written, a card costs its cell, rows keep their places."""

from collections.abc import Sequence

import msgspec
import pytest
from textual.geometry import Region
from textual.widget import Widget

from console.app import Console
from console.screens.gpu_tables import idle_cell
from console.screens.gpus import Gpus
from console.screens.overview import Overview
from console.state.cluster import ClusterState
from console.state.folding import NodeLine
from console.state.history import NODE_SAMPLE_S, History
from console.state.holdings import IdleHolding
from console.state.store import Link
from console.widgets.columns import Seen
from console.widgets.gpu_cells import CELL, STEP
from console.widgets.gpu_map import ARRANGE_S
from console.widgets.workmap import RANK_S, WorkMap
from llmgw.api.watch import Delta, FiguresRow, NodeRow, ReplicaRow
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell
from tests.console.test_gpus import view_of, wide_fleet
from tests.support.fleet_rows import NOW, delta, figures_row, node_row, replica_row, small_fleet, snapshot

pytestmark = pytest.mark.asyncio


class Clock:
    """The console's clock, in the test's hands."""

    def __init__(self, console: Console) -> None:
        self.now = NOW
        console.clock = lambda: self.now


def asked_of(widget: Widget, monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions that the widget asks to be painted from now on."""
    asked: list[Region] = []

    def refresh(*regions: Region, repaint: bool = True, layout: bool = False) -> Widget:
        asked.extend(regions or (widget.size.region,))
        return widget

    monkeypatch.setattr(widget, "refresh", refresh)
    return asked


def works(console: Console, name: str, work: Sequence[float | None]) -> Delta:
    """The cards of `name` work so much, and all else is as it was."""
    figures = console.store.state.figures[name]
    return delta({"figures": {name: msgspec.structs.replace(figures, work_percent=tuple(work))}}, rev=9)


def work_of(console: Console, name: str) -> list[float]:
    return [value or 0.0 for value in console.store.state.figures[name].work_percent]


def small_map(console: Console) -> WorkMap:
    assert isinstance(console.main.view, Overview)
    return console.main.view.query_one(WorkMap)


def order(console: Console) -> list[str]:
    return [line.node for line in view_of(console).map.lines if isinstance(line, NodeLine)]


class TestWritten:
    @pytest.mark.parametrize("view", ["gpus", "overview"])
    async def test_a_figure_that_reads_the_same_asks_for_nothing(
        self, view: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        console = console_with(small_fleet(), start=view)
        async with shown(console) as pilot:
            map_ = view_of(console).map if view == "gpus" else small_map(console)
            asked = asked_of(map_, monkeypatch)
            await tell(console, pilot, works(console, "gpu01", [work + 0.1 for work in work_of(console, "gpu01")]))
            assert asked == []

    async def test_one_card_that_changed_asks_for_its_cell(self, monkeypatch: pytest.MonkeyPatch) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            map_ = view_of(console).map
            work = work_of(console, "gpu01")
            asked = asked_of(map_, monkeypatch)
            # The mean of eight moves by an eighth, and reads the same.
            await tell(console, pilot, works(console, "gpu01", [*work[:3], work[3] + 1, *work[4:]]))
            assert [(region.x, region.width, region.height) for region in asked] == [
                (map_._book.layout.first_cell + 3 * STEP, CELL, 1)
            ]

    async def test_and_so_it_does_in_the_small_map(self, monkeypatch: pytest.MonkeyPatch) -> None:
        console = console_with(small_fleet(), start="overview")
        async with shown(console) as pilot:
            map_ = small_map(console)
            work = work_of(console, "gpu01")
            asked = asked_of(map_, monkeypatch)
            await tell(console, pilot, works(console, "gpu01", [*work[:3], work[3] + 1, *work[4:]]))
            assert [(region.width, region.height) for region in asked] == [(CELL, 1)]

    async def test_requests_that_begin_and_end_ask_for_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            asked = asked_of(view_of(console).map, monkeypatch)
            replica = console.store.state.replicas["r-gpu01-0"]
            busier = msgspec.structs.replace(replica, in_flight=replica.in_flight + 7)
            await tell(console, pilot, delta({"replicas": {replica.id: busier}}, rev=9))
            assert asked == []


class TestPlaces:
    async def test_lines_keep_their_places_for_a_while(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        clock = Clock(console)
        async with shown(console) as pilot:
            await pilot.press("o")
            before = order(console)
            last = before[-1]
            rests = msgspec.structs.replace(
                console.store.state.figures["gpu01"], work_percent=(0.0,) * 8, utilization_percent=(0.0,) * 8
            )
            assert before.index("gpu01") > 1
            clock.now += ARRANGE_S / 2
            await tell(console, pilot, delta({"figures": {"gpu01": rests}}, rev=9))
            console.main.tick(console.seen())
            assert order(console) == before
            clock.now += ARRANGE_S / 2
            console.main.tick(console.seen())
            assert order(console) != before
            assert order(console).index("gpu01") < before.index("gpu01")
            assert order(console)[-1] == last

    async def test_a_key_arranges_at_once(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        Clock(console)
        async with shown(console) as pilot:
            by_name = order(console)
            await pilot.press("o")
            assert order(console) != by_name
            await pilot.press("o")
            assert order(console) == by_name

    async def test_a_node_that_falls_silent_does_not_wait(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        Clock(console)
        async with shown(console) as pilot:
            await pilot.press("o")
            assert order(console)[0] != "gpu01"
            silent = msgspec.structs.replace(console.store.state.nodes["gpu01"], state="lost")
            await tell(console, pilot, delta({"nodes": {"gpu01": silent}}, rev=9))
            assert order(console).index("gpu01") <= 1

    async def test_the_small_map_keeps_its_rows_for_a_while(self) -> None:
        console = console_with(wide_fleet(100, quiet=False), start="overview")
        clock = Clock(console)
        async with shown(console) as pilot:
            before = map_names(console)
            hidden = next(name for name in console.store.state.nodes if name not in before and name != "node0000")
            clock.now += RANK_S / 2
            await tell(console, pilot, works(console, hidden, (100.0,) * 8))
            assert map_names(console) == before
            clock.now += RANK_S / 2
            await tell(console, pilot, works(console, hidden, (99.0,) * 8))
            assert hidden in map_names(console)

    async def test_a_node_in_trouble_has_a_row_at_once(self) -> None:
        console = console_with(wide_fleet(100, quiet=False), start="overview")
        Clock(console)
        async with shown(console) as pilot:
            assert "node0000" not in map_names(console)
            silent = msgspec.structs.replace(console.store.state.nodes["node0000"], state="silent")
            await tell(console, pilot, delta({"nodes": {"node0000": silent}}, rev=9))
            assert "node0000" in map_names(console)

    async def test_a_row_stays_until_another_is_busier_by_far(self) -> None:
        console = console_with(wide_fleet(100, quiet=False), start="overview")
        clock = Clock(console)
        async with shown(console) as pilot:
            before = map_names(console)
            least = min(sum(work_of(console, name)) / 8 for name in before)
            hidden = next(name for name in console.store.state.nodes if name not in before)
            clock.now += RANK_S
            await tell(console, pilot, works(console, hidden, (least + 5,) * 8))
            assert map_names(console) == before


def map_names(console: Console) -> list[str]:
    """Nodes that have a row in Overview's map."""
    known = console.store.state.nodes
    lines = [line[2:].split() for line in screen_lines(console)]
    found = [words[0] for words in lines if words and words[0] in known]
    return [name for name in found if name in small_map(console)._shown]


class TestHonesty:
    @pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
    @pytest.mark.parametrize("view", ["overview", "gpus"])
    async def test_before_any_word_nothing_is_said_to_be_nought(self, view: str, size: tuple[int, int]) -> None:
        console = console_with(start=view, link=Link(state="connecting"))
        async with shown(console, size=size):
            console.main.tick(console.seen())
            text = "\n".join(screen_lines(console)[2:-1])
            assert "asking" in text
            for claim in ("0", "nothing ·", "no GPU", "none", "no errors", "every card", "No node", "all is well"):
                assert claim not in text, claim

    async def test_a_reason_stands_where_the_map_will_be(self) -> None:
        console = console_with(start="gpus", link=Link(state="lost", since=NOW, reason="nobody answers there"))
        async with shown(console):
            console.main.tick(console.seen())
            assert screen_text(console).count("nobody answers there") >= 2

    @pytest.mark.parametrize(
        ("source", "limit_w", "there"),
        [("power", 700.0, ("450/700 W", "power against its limit")), ("sm", None, ("450 W", "SMs active"))],
    )
    async def test_a_card_tells_its_limit_and_what_its_work_is_read_from(
        self, source: str, limit_w: float | None, there: tuple[str, ...]
    ) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console, size=(140, 45)) as pilot:
            node = console.store.state.nodes["gpu01"]
            card = msgspec.structs.replace(node.cards[0], power_limit_w=limit_w, work_from=source)
            told = msgspec.structs.replace(node, cards=(card, *node.cards[1:]))
            await tell(console, pilot, delta({"nodes": {"gpu01": told}}, rev=9))
            panel = "\n".join(line[95:] for line in screen_lines(console)[:20])
            for words in there:
                assert words in panel

    async def test_the_small_map_dims_nodes_that_do_not_speak(self) -> None:
        console = console_with(small_fleet(), start="overview")
        async with shown(console) as pilot:
            speaking = tones(small_map(console), "gpu01")
            assert any(tone.startswith("heat") for tone in speaking)
            silent = msgspec.structs.replace(console.store.state.nodes["gpu01"], state="silent")
            await tell(console, pilot, delta({"nodes": {"gpu01": silent}}, rev=9))
            assert not any(tone.startswith("heat") for tone in tones(small_map(console), "gpu01"))
            assert "72" in screen_text(console), "the figures stay, as old ones"

    @pytest.mark.parametrize(
        ("state", "there_s", "told"),
        [("ready", 35.0, "35s"), ("ready", 5.0, "now"), ("ready", 5000.0, ">15m"), ("draining", 35.0, ">15m")],
    )
    async def test_a_replica_is_not_idle_for_longer_than_it_is_there(
        self, state: str, there_s: float, told: str
    ) -> None:
        node = node_row("n", 1, held={0: "a"})
        history, fleet = rested(node)
        replica = msgspec.structs.replace(replica_row("a", "chat", "n"), since=NOW - there_s, state=state)
        fleet, _ = fleet.apply(delta({"replicas": {"a": replica}}, rev=9), at=NOW)
        holding = IdleHolding(replica="a", model="chat", state=state, node="n", places=(0,), of=1, draw_w=80.0)
        cell = idle_cell(holding, Seen(state=fleet, history=history, now=NOW))
        assert isinstance(cell, tuple)
        assert cell[0] == told


def rested(node: NodeRow) -> tuple[History, ClusterState]:
    """A quarter of an hour in which the node's card did nothing."""
    history, state = History(), ClusterState()
    figures: FiguresRow = figures_row(node, (0.0,))
    held: ReplicaRow = replica_row("a", "chat", "n")
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "nodes": {"n": node},
        "figures": {"n": figures},
        "replicas": {"a": held},
    }
    state, _ = state.apply(snapshot(rows), at=NOW)
    for step in range(100):
        history.record(state, NOW + step * NODE_SAMPLE_S)
    return history, state


async def test_nodes_with_a_word_to_say_leave_room_for_those_that_work() -> None:
    nodes = [node_row(f"gpu{n:02}", 8, held={0: f"r{n}"}) for n in range(20)]
    nodes[:12] = [msgspec.structs.replace(node, state="lost") for node in nodes[:12]]
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "nodes": {node.name: node for node in nodes},
        "figures": {node.name: figures_row(node, (95.0,) * 8) for node in nodes},
    }
    console = console_with(snapshot(rows), start="overview")
    async with shown(console, size=(120, 30)):
        map_ = small_map(console)
        lost = [name for name in map_._shown if console.store.state.nodes[name].state == "lost"]
        assert lost
        assert len(lost) < len(map_._shown), "no node that works has a row"
        hidden = 20 - len(map_._shown)
        at_work = 8 - (len(map_._shown) - len(lost))
        assert f"and {hidden} nodes with {8 * hidden} cards, {at_work} at work" in screen_text(console)


def tones(map_: WorkMap, name: str) -> list[str]:
    return [tone for _, tone in map_._row(name)]


async def test_the_view_has_its_tables_before_it_has_a_word() -> None:
    console = console_with(start="gpus", link=Link(state="connecting"))
    async with shown(console):
        view = console.main.view
        assert isinstance(view, Gpus)
        assert screen_text(console).count("asking") >= 3, "map, card and tables wait"
