"""The GPUs view: cells, cursor, modes, folding, filter, tables; and that a burst of figures paints what is in sight."""

import math
from collections.abc import Iterator

import msgspec
import pytest
from textual.geometry import Region

from console.app import Console
from console.places import Subject
from console.screens.gpus import Gpus
from console.signs import ASCII, UNICODE, use_signs
from console.state.cards import Mode, card_at
from console.state.cluster import ClusterState
from console.state.folding import Folds, GroupLine, NodeLine, arrange
from console.state.history import NODE_SAMPLE_S, History
from console.state.holdings import Holdings, idle_for
from console.widgets.gpu_cells import CELL, cell, lay_out_rows
from console.widgets.gpu_map import GpuMap
from console.widgets.order import natural
from console.widgets.paint import TONES
from llmgw.api.actions import Target
from llmgw.api.watch import Delta, FiguresRow, NodeRow, Snapshot, TrafficRow
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell, until
from tests.support.fleet_rows import (
    NOW,
    delta,
    empty_cluster,
    figures_row,
    node_row,
    replica_row,
    small_fleet,
    small_rows,
    snapshot,
)

HOSTILE = "gpu[/][@click=app.quit]x[/]\x1b[31m\u202e\u0301"


@pytest.fixture(autouse=True)
def _signs() -> Iterator[None]:
    yield
    use_signs(UNICODE)


def state_of(message: Snapshot) -> ClusterState:
    """The state after one message."""
    return ClusterState().apply(message, at=NOW)[0]


def view_of(console: Console) -> Gpus:
    """The view in front."""
    view = console.main.view
    assert isinstance(view, Gpus)
    return view


def wide_fleet(nodes: int, cards: int = 8, *, quiet: bool = True) -> Snapshot:
    """Many machines: most at work as they should, every fifth free, every fiftieth with a card wearing out."""
    rows: dict[str, dict[str, msgspec.Struct]] = {"nodes": {}, "figures": {}, "replicas": {}, "models": {}}
    for i in range(nodes):
        name = f"node{i:04d}"
        free = i % 5 == 0
        worn = (3,) if i % 50 == 7 and quiet else ()
        held = {} if free else {k: f"r-{i}-{k // 4}" for k in range(cards)}
        node = node_row(name, cards, held=held, worn=worn)
        rows["nodes"][name] = node
        work = 0.0 if free else 40.0 + i % 50
        rows["figures"][name] = figures_row(node, (work,) * cards)
        for id_ in sorted(set(held.values())):
            uuids = tuple(card.uuid for card in node.cards if card.replica == id_)
            rows["replicas"][id_] = replica_row(id_, f"model-{i % 3}", name, cards=uuids)
    return snapshot(rows)


def burst(snap: Snapshot, nodes: int, work: float) -> Delta:
    """New figures for the first `nodes` nodes."""
    state = state_of(snap)
    names = sorted(state.nodes, key=natural)[:nodes]
    return delta({"figures": {name: figures_row(state.nodes[name], (work,) * 8) for name in names}})


@pytest.mark.asyncio
async def test_a_note_cut_short_beside_the_scrollbar_says_so() -> None:
    nodes = [node_row(f"gpu{n:02}", 8, state="lost", worn=(1, 2)) for n in range(40)]
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "nodes": {node.name: node for node in nodes},
        "figures": {node.name: figures_row(node, (5.0,) * 8) for node in nodes},
        "replicas": {node.name: replica_row(node.name, "m", node.name, "failed") for node in nodes},
    }
    console = console_with(snapshot(rows), start="gpus")
    async with shown(console, size=(80, 24)):
        line = next(line for line in screen_lines(console) if "lost" in line)
        assert "…" in line, line


class TestCells:
    def cell_of(self, node: NodeRow, figures: FiguresRow | None, mode: Mode, place: int = 0) -> tuple[str, str]:
        rows: dict[str, dict[str, msgspec.Struct]] = {"nodes": {node.name: node}}
        if figures is not None:
            rows["figures"] = {node.name: figures}
        on = card_at(state_of(snapshot(rows)), node.name, place)
        assert on is not None
        return cell(on, mode)

    def test_every_state_differs_without_colour(self) -> None:
        work = (72.0, 0.0, 35.0, 0.0, 100.0)
        node = node_row("n", 5, held={0: "a", 2: "a", 4: "a"}, worn=(2, 3))
        figures = figures_row(node, work)
        texts = [self.cell_of(node, figures, Mode.WORK, place)[0] for place in range(5)]
        assert texts == [" 72 ", " ╌╌ ", " 35!", " ╌╌!", "100 "]

    def test_a_free_card_that_somebody_uses_tells_its_figure(self) -> None:
        node = node_row("n", 1)
        assert self.cell_of(node, figures_row(node, (62.0,)), Mode.WORK)[0] == "╌62╌"
        assert self.cell_of(node, figures_row(node, (8.0,)), Mode.WORK)[0] == " ╌╌ "

    def test_nothing_reported_is_no_zero(self) -> None:
        node = node_row("n", 1, held={0: "a"})
        assert self.cell_of(node, None, Mode.WORK) == ("  – ", "unused")
        assert self.cell_of(node, FiguresRow(heard=NOW, work_percent=(math.inf,)), Mode.WORK)[0] == "  – "

    def test_a_silent_node_is_not_coloured_as_if_it_spoke(self) -> None:
        node = node_row("n", 1, held={0: "a"}, state="silent")
        assert self.cell_of(node, figures_row(node, (62.0,)), Mode.WORK) == (" 62 ", "dim")

    def test_a_hot_card_has_a_mark(self) -> None:
        node = node_row("n", 1, held={0: "a"})
        assert self.cell_of(node, FiguresRow(heard=NOW, temperature_c=(91.0,)), Mode.TEMPERATURE)[0] == " 91^"

    @pytest.mark.parametrize("mode", list(Mode))
    @pytest.mark.parametrize("ascii_only", [False, True])
    def test_cells_are_of_one_width_and_of_known_tones(self, mode: Mode, ascii_only: bool) -> None:
        use_signs(ASCII if ascii_only else UNICODE)
        for value in (None, -5.0, 0.0, 3.0, 9.9, 55.0, 100.0, 1e9, math.nan):
            for held in (None, "r"):
                for worn in ((), (0,)):
                    node = node_row("n", 1, held={0: held} if held else {}, worn=worn)
                    figures = FiguresRow(
                        heard=NOW,
                        work_percent=(value,),
                        utilization_percent=(value,),
                        temperature_c=(value,),
                        memory_used_bytes=(None if value is None or value != value else int(value),),
                    )
                    state = ClusterState(nodes={"n": node}, figures={"n": figures})
                    on = card_at(state, "n", 0)
                    assert on is not None
                    text, tone = cell(on, mode)
                    assert len(text) == CELL
                    assert tone in TONES
                    assert text.isascii() or not ascii_only

    def test_cards_wrap_where_they_do_not_fit(self) -> None:
        assert lay_out_rows(120, 10, 8).across == 8
        assert lay_out_rows(60, 10, 16).across == 4
        assert lay_out_rows(5, 10, 16).across == 1


class TestFolding:
    def test_few_nodes_are_never_folded(self) -> None:
        state = state_of(wide_fleet(10))
        lines = arrange(state, sorted(state.nodes), Folds(), 8)
        assert [line.node for line in lines if isinstance(line, NodeLine)] == sorted(state.nodes)

    def test_many_fold_by_what_there_is_to_tell(self) -> None:
        state = state_of(wide_fleet(1000))
        lines = arrange(state, sorted(state.nodes), Folds(), 8)
        shown = [line.node for line in lines if isinstance(line, NodeLine)]
        groups = {line.word: len(line.nodes) for line in lines if isinstance(line, GroupLine)}
        assert shown == [f"node{i:04d}" for i in range(7, 1000, 50)]
        assert groups == {"free": 200, "at work": 780}

    def test_an_unfolded_group_shows_its_nodes(self) -> None:
        state = state_of(wide_fleet(100))
        group = next(g for g in arrange(state, sorted(state.nodes), Folds(), 8) if isinstance(g, GroupLine))
        lines = arrange(state, sorted(state.nodes), Folds(unfolded=frozenset({group.key})), 8)
        assert set(group.nodes) <= {line.node for line in lines if isinstance(line, NodeLine)}

    def test_worst_first(self) -> None:
        state = state_of(small_fleet())
        lines = arrange(state, sorted(state.nodes), Folds(worst_first=True), 8)
        assert [line.node for line in lines if isinstance(line, NodeLine)][:2] == ["gpu04", "gpu07"]

    def test_a_node_with_many_cards_has_several_lines(self) -> None:
        state = state_of(snapshot({"nodes": {"n": node_row("n", 10)}}))
        lines = arrange(state, ["n"], Folds(), 4)
        assert [line.first for line in lines if isinstance(line, NodeLine)] == [0, 4, 8]


class TestHoldings:
    def test_a_model_gets_what_its_cards_give(self) -> None:
        node = node_row("n", 4, held={0: "a", 1: "a", 2: "b"})
        state = state_of(
            snapshot(
                {
                    "nodes": {"n": node},
                    "figures": {
                        "n": FiguresRow(
                            heard=NOW,
                            work_percent=(60.0, 80.0, None, 9.0),
                            utilization_percent=(90.0, 100.0, 0.0, 9.0),
                            power_w=(300.0, 420.0, None, 80.0),
                        )
                    },
                    "replicas": {"a": replica_row("a", "chat", "n"), "b": replica_row("b", "code", "n")},
                    "traffic": {"chat": TrafficRow(output_tokens_per_s=1440.0)},
                }
            )
        )
        holdings = Holdings()
        holdings.update(state, None)
        lines = holdings.efficiency(state)
        chat, code = lines["chat"], lines["code"]
        assert list(lines) == ["chat", "code"]
        assert (chat.cards, chat.per_card, chat.work, chat.busy, chat.draw_w) == (2, 720.0, 70.0, 95.0, 720.0)
        assert chat.tokens_per_wh == 1440.0 * 3600 / 720.0
        assert (code.work, code.draw_w, code.tokens_per_wh) == (None, None, None)
        assert [(held.replica, held.places, held.of) for held in holdings.idle(state).values()] == [("b", (2,), 1)]

    def test_updates_cost_only_their_node_and_agree_with_a_count_from_scratch(self) -> None:
        snap = wide_fleet(30)
        state = state_of(snap)
        kept, fresh = Holdings(), Holdings()
        kept.update(state, None)
        state, diff = state.apply(burst(snap, 12, 0.0), at=NOW)
        kept.update(state, diff.keys("figures"))
        fresh.update(state, None)
        kept_lines, fresh_lines = kept.efficiency(state), fresh.efficiency(state)
        assert list(kept_lines) == list(fresh_lines)
        for model, line in fresh_lines.items():
            # Nodes are added up in another order: the last digits of a mean may differ.
            assert kept_lines[model].cards == line.cards
            assert kept_lines[model].work == pytest.approx(line.work)
            assert kept_lines[model].draw_w == pytest.approx(line.draw_w)
        assert kept.idle(state) == fresh.idle(state)
        assert kept.idle(state)

    def test_idle_for_as_long_as_samples_say(self) -> None:
        node = node_row("n", 1, held={0: "a"})
        history, state = History(), ClusterState()
        for step, work in enumerate((50.0, 0.0, 0.0, 0.0)):
            figures = figures_row(node, (work,))
            state, _ = state.apply(snapshot({"nodes": {"n": node}, "figures": {"n": figures}}), at=NOW)
            history.record(state, NOW + step * NODE_SAMPLE_S)
        assert idle_for(history, "n", (0,)) == (3 * NODE_SAMPLE_S, False)
        assert idle_for(history, "n", ()) == (0.0, False)
        assert idle_for(history, "elsewhere", (0,)) == (0.0, True)


@pytest.mark.asyncio
class TestView:
    async def test_modes_change_the_figures_and_the_title(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            map_ = view_of(console).map
            assert "72" in screen_text(console)
            for key, mode, there in (("b", Mode.BUSY, "share of time"), ("m", Mode.MEMORY, "memory in use")):
                await pilot.press(key)
                assert map_.mode == mode
                assert there in screen_text(console)
            await pilot.press("t")
            assert map_.mode.value == "temperature"
            assert console.main.trail.here.view == "gpus"
            await pilot.press("w")
            assert map_.mode.value == "work"

    async def test_the_cursor_walks_cards_and_actions_follow_it(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            view = view_of(console)
            await pilot.press("right", "right", "down")
            card = view.map.card
            assert card is not None
            assert (card.node.name, card.place) == ("gpu02", 2)
            assert view.subjects() == (Subject(target=Target.REPLICA, key="r-gpu02-1"),)
            assert "[ 52 ]" in screen_text(console)
            await pilot.press("left", "left", "left")
            card = view.map.card
            assert card is not None
            assert (card.node.name, card.place) == ("gpu01", 7)
            await pilot.press("down")
            assert view.subjects() == (Subject(target=Target.NODE, key="gpu02"),)
            assert view.copy_text() == "GPU-gpu02-7"

    async def test_enter_opens_the_replica_and_a_free_cards_node(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            await pilot.press("enter")
            await until(lambda: console.main.trail.here.view == "replica")
            assert console.main.trail.here.key == "r-gpu01-0"
            await pilot.press("escape")
            await until(lambda: console.main.trail.here.view == "gpus")
            view_of(console).map.move_to("gpu02", 7)
            await pilot.press("enter")
            await until(lambda: console.main.trail.here.view == "node")
            assert console.main.trail.here.key == "gpu02"

    async def test_the_panel_tells_all_of_the_card(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console, size=(140, 45)) as pilot:
            view_of(console).map.move_to("gpu07", 2)
            await pilot.pause()
            text = screen_text(console)
            for there in (
                "gpu07 · GPU 2",
                "12 rows remapped",
                "rtx6000-24g",
                "GPU-gpu07-2",
                "18.2/24 GB",
                "no replica",
            ):
                assert there in text

    async def test_filter_dims_cards_and_hides_nodes_until_esc(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            view = view_of(console)
            await pilot.press("slash", *"gpu:l40s")
            assert view.map.nodes_shown == 2
            await pilot.press("enter")
            await pilot.press("escape")
            assert view.map.nodes_shown == 7
            assert view.set_filter("state:worn")
            await pilot.pause()
            assert [line.node for line in view.map.lines if isinstance(line, NodeLine)] == ["gpu04", "gpu07"]
            assert " 35!" in screen_text(console)
            view.set_filter("nothing-like-this")
            await pilot.pause()
            assert "no card matches" in screen_text(console)

    async def test_tables_below_open_what_they_are_about(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            view = view_of(console)
            console.main.tick(console.seen())
            await pilot.pause()
            text = screen_text(console)
            assert "held and doing nothing · 4 cards" in text
            assert "best per card first" in text
            assert view.models.shown[0] == "qwen2.5-7b"
            await pilot.press("tab")
            assert view.idle.has_focus
            assert view.subjects()[0].target is Target.REPLICA
            await pilot.press("tab")
            assert view.subjects() == (Subject(target=Target.MODEL, key="qwen2.5-7b"),)
            await pilot.press("escape")
            assert view.map.has_focus

    async def test_on_a_small_screen_the_panes_are_turned_over(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console, size=(80, 24)) as pilot:
            assert "gpu01 · GPU 0" in screen_text(console)
            await pilot.press("v")
            await pilot.pause()
            assert "held and doing nothing" in screen_text(console)
            await pilot.press("v")
            await pilot.pause()
            assert "what each model gets" in screen_text(console)
            await pilot.press("v")
            await pilot.pause()
            assert not view_of(console).models.display

    @pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (107, 30), (200, 60)])
    async def test_any_size_will_do(self, size: tuple[int, int]) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console, size=size) as pilot:
            await pilot.press("down", "right", "m", "end", "home", "pagedown")
            assert "gpu0" in screen_text(console)

    async def test_hostile_names_are_shown_and_do_nothing(self) -> None:
        rows = small_rows()
        held = {0: "r"}
        node = msgspec.structs.replace(node_row("x", 2, held=held), name=HOSTILE)
        rows["nodes"][HOSTILE] = node
        rows["figures"][HOSTILE] = figures_row(node, (55.0, 0.0))
        rows["replicas"]["r"] = replica_row("r", "[bold]model[/]", HOSTILE)
        console = console_with(snapshot(rows), start="gpus")
        async with shown(console, size=(140, 45)) as pilot:
            view = view_of(console)
            assert view.map.move_to(HOSTILE)
            console.main.tick(console.seen())
            await pilot.pause()
            text = screen_text(console)
            assert "gpu[/]" in text
            assert "[bold]model[/]" in text
            assert "\x1b" not in text
            assert "\u202e" not in text
            view.set_filter(HOSTILE)
            await pilot.pause()
            assert console.is_running

    async def test_before_anything_came_and_without_nodes(self) -> None:
        console = console_with(start="gpus")
        async with shown(console):
            assert "asking" in screen_text(console)
        console = console_with(empty_cluster(), start="gpus")
        async with shown(console):
            assert "No node has joined." in screen_text(console)

    async def test_the_node_under_the_cursor_goes_away(self) -> None:
        console = console_with(small_fleet(), start="gpus")
        async with shown(console) as pilot:
            map_ = view_of(console).map
            map_.move_to("gpu07", 3)
            await tell(console, pilot, delta(gone={"nodes": ("gpu07",), "figures": ("gpu07",)}))
            assert isinstance(map_.line, NodeLine)
            assert map_.line.node == "gpu06"
            assert map_.card is not None

    async def test_groups_unfold_and_fold_again(self) -> None:
        console = console_with(wide_fleet(100), start="gpus")
        async with shown(console) as pilot:
            map_ = view_of(console).map
            assert "78 nodes × 8" in screen_text(console)
            assert len(map_.lines) == 4
            await pilot.press("end")
            assert isinstance(map_.line, GroupLine)
            assert view_of(console).subjects() == ()
            await pilot.press("enter")
            assert len(map_.lines) == 4 - 1 + 20
            assert map_.card is not None
            await pilot.press("z")
            assert len(map_.lines) == 100
            await pilot.press("z")
            assert len(map_.lines) == 4

    async def test_a_burst_paints_only_what_is_in_sight_and_differs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        snap = wide_fleet(1000, quiet=False)
        console = console_with(snap, start="gpus")
        asked: list[int] = []
        drawn: list[int] = []
        refresh, render_line = GpuMap.refresh, GpuMap.render_line

        def counted(self: GpuMap, *regions: Region, repaint: bool = True, layout: bool = False) -> GpuMap:
            asked.extend(region.y for region in regions)
            refresh(self, *regions, repaint=repaint, layout=layout)
            return self

        def counted_line(self: GpuMap, y: int) -> object:
            drawn.append(y)
            return render_line(self, y)

        async with shown(console) as pilot:
            map_ = view_of(console).map
            await pilot.press("z")
            assert len(map_.lines) == 1000
            rows = map_.size.height
            monkeypatch.setattr(GpuMap, "refresh", counted)
            monkeypatch.setattr(GpuMap, "render_line", counted_line)
            await tell(console, pilot, burst(snap, 200, 77.0))
            assert 0 < len(set(asked)) <= rows
            assert len(drawn) <= rows
            drawn.clear()
            asked.clear()
            names = sorted(console.store.state.nodes)[500:700]
            state = console.store.state
            far = delta({"figures": {name: figures_row(state.nodes[name], (33.0,) * 8) for name in names}}, rev=3)
            await tell(console, pilot, far)
            assert asked == []
            assert drawn == []
