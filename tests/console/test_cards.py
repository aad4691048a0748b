"""What is told of one card: wear, splits, what holds it back, its profile; and of replicas that breakers keep back."""

from collections.abc import Iterator

import msgspec
import pytest

from console.app import Console
from console.places import Place, Subject
from console.screens.gpu_tables import idle_cell
from console.screens.gpus import Gpus
from console.signs import ASCII, UNICODE, sort_mark, use_signs
from console.state.attention import problems
from console.state.breakers import open_of, sentence_of
from console.state.cards import Mode, card_at, card_facts
from console.state.cluster import ClusterState
from console.state.folding import NodeLine
from console.state.history import History
from console.state.holdings import Holdings
from console.state.loads import node_load
from console.widgets.card_facts import card_lines, short_card_lines
from console.widgets.columns import Seen
from console.widgets.gpu_cells import cell
from console.widgets.lines import Line
from console.widgets.map_legend import legend_lines
from llmgw.api.actions import Target
from llmgw.api.watch import CardRow, FiguresRow, NodeRow
from llmgw.core.throttle import POWER_CAP, READ
from tests.console import showcase, showcase_names
from tests.console.harness import console_with, screen_lines, screen_text, shown
from tests.console.scenes import console_in, settle, visit
from tests.console.test_gpus import wide_fleet
from tests.support.fleet_rows import GB, NOW, figures_row, node_row, replica_row, snapshot

WEAR = "A bad memory row waits to be replaced by a spare: reset the card or restart the node."


@pytest.fixture(autouse=True)
def _signs() -> Iterator[None]:
    yield
    use_signs(UNICODE)


def seen_of(state: ClusterState) -> Seen:
    return Seen(state=state, history=History(), now=NOW)


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def state_of(node: NodeRow, figures: FiguresRow, **rows: dict[str, msgspec.Struct]) -> ClusterState:
    told: dict[str, dict[str, msgspec.Struct]] = {"nodes": {"n": node}, "figures": {"n": figures}, **rows}
    return ClusterState().apply(snapshot(told), at=NOW)[0]


def with_card(**facts: object) -> NodeRow:
    node = node_row("n", 2, held={0: "r"})
    return msgspec.structs.replace(node, cards=(msgspec.structs.replace(node.cards[0], **facts), node.cards[1]))


def panel(state: ClusterState, place: int = 0, columns: int = 60) -> str:
    on = card_at(state, "n", place)
    assert on is not None
    return text_of(card_lines(seen_of(state), on, columns))


class TestPanel:
    def test_everything_the_feed_tells_of_a_card(self) -> None:
        node = with_card(
            wear=(WEAR,),
            work_from="sm",
            power_limit_w=700.0,
            nvlink_peers=7,
            pcie_generation=5,
            pcie_width=16,
            numa_node=1,
        )
        figures = FiguresRow(
            heard=NOW,
            work_percent=(69.0,),
            utilization_percent=(100.0,),
            memory_used_bytes=(61 * GB,),
            temperature_c=(71.0,),
            memory_temperature_c=(84.0,),
            power_w=(595.0,),
            sm_clock_mhz=(1980.0,),
            throttle_reasons=(READ | POWER_CAP,),
            sm_occupancy_percent=(44.0,),
            tensor_active_percent=(31.0,),
            dram_active_percent=(62.0,),
            engine_cpu_percent={"r": 250.0},
            engine_memory_bytes={"r": 12 * GB},
        )
        text = panel(state_of(node, figures, replicas={"r": replica_row("r", "chat", "n")}), columns=90)
        text = " ".join(text.split())
        for there in (
            "chat",
            WEAR,
            "NVLink to 7, PCIe 5 x16, NUMA 1",
            "SMs active",
            "slowed",
            "at its power limit",
            "69% ~ held",
            "100%",
            "61/80 GB",
            "595/700 W",
            "71° mem 84°",
            "SM 69% tensor 31% DRAM 62% warps 44%",
            "1,980 MHz",
            "2.5 CPUs, 12 GB of the node",
        ):
            assert there in text

    def test_what_is_not_told_is_not_there(self) -> None:
        text = panel(state_of(with_card(), FiguresRow(heard=NOW)))
        for name in ("links", "profile", "clock", "engine", "slowed", "MIG", "trouble", "None"):
            assert name not in text

    def test_an_instance_has_its_own_memory_and_no_busy(self) -> None:
        node = node_row("n", 1)
        whole = msgspec.structs.replace(node.cards[0], memory_total_bytes=None, problem="split")
        instance = CardRow(
            uuid="MIG-1",
            index=1001,
            name="H100 MIG 3g.40gb",
            gpu_class="h100-80g-mig-3g.40gb",
            memory_total_bytes=40 * GB,
            parent=whole.uuid,
            mig_profile="3g.40gb",
        )
        state = state_of(
            msgspec.structs.replace(node, cards=(whole, instance)),
            FiguresRow(heard=NOW, memory_used_bytes=(None, 30 * GB), temperature_c=(50.0, 50.0)),
        )
        text = panel(state, 1)
        assert "3g.40gb of GPU 0" in text
        assert "30/40 GB" in text
        for name in ("busy", "power", "work"):
            assert name not in text
        on = card_at(state, "n", 0)
        assert on is not None
        assert cell(on, Mode.WORK) == ("MIG ", "dim")
        assert card_facts(state, on)["state"] == "split"
        # The card that is split takes no work: one is free, and that is the instance.
        assert node_load(state.nodes["n"], state.figures["n"]).free == 1

    def test_below_the_map_it_takes_no_more_rows_than_it_is_given(self) -> None:
        node = with_card(wear=(WEAR, WEAR, WEAR), nvlink_peers=7)
        state = state_of(node, figures_row(node, (1.0, 1.0)))
        on = card_at(state, "n", 0)
        assert on is not None
        assert len(short_card_lines(seen_of(state), on, 76, 6)) == 6
        assert len(short_card_lines(seen_of(state), on, 40, 6)) == 6

    @pytest.mark.parametrize("mode", list(Mode))
    def test_the_legend_says_what_the_mode_is_and_fits_the_panel(self, mode: Mode) -> None:
        lines = legend_lines(mode, heard=True)
        assert text_of(lines).startswith(mode.value)
        # The sentence wraps; cells must not.
        assert max(len("".join(text for text, _ in line)) for line in lines[1:]) <= 37
        assert not any(sign.isdigit() and sign == "0" for sign in text_of(legend_lines(mode, heard=False)[1:]))


class TestMarks:
    def mark(self, node: NodeRow, figures: FiguresRow, mode: Mode = Mode.WORK) -> str:
        on = card_at(state_of(node, figures), "n", 0)
        assert on is not None
        return cell(on, mode)[0]

    def test_a_card_that_wears_out_while_it_works_is_marked(self) -> None:
        node = with_card(wear=(WEAR,))
        assert self.mark(node, figures_row(node, (35.0, 0.0))) == " 35!"
        assert node_load(node, figures_row(node, (35.0, 0.0))).worn == 1

    def test_a_card_that_is_held_back_is_marked_in_every_mode(self) -> None:
        node = with_card()
        figures = msgspec.structs.replace(figures_row(node, (72.0, 0.0)), throttle_reasons=(READ | POWER_CAP, READ))
        assert self.mark(node, figures) == " 72~"
        assert self.mark(node, figures, Mode.MEMORY).endswith("~")
        # What an administrator set is no trouble.
        assert self.mark(node, msgspec.structs.replace(figures, throttle_reasons=(READ | 0x2, READ))) == " 72 "

    def test_its_wear_is_among_what_needs_attention(self) -> None:
        node = with_card(wear=(WEAR, "NVLink had to be trained anew: look at cables, bridge and switches."))
        found = problems(state_of(node, figures_row(node, (1.0, 1.0))), NOW)
        (sentence,) = [problem.sentence for problem in found if problem.name == "n:0"]
        assert f": {WEAR.rstrip('.')}; NVLink had to be trained anew" in sentence
        assert len({problem.id for problem in found}) == len(found)


class TestIdle:
    def test_the_server_says_for_how_long_and_never_longer_than_the_replica_is_there(self) -> None:
        node = with_card()
        figures = msgspec.structs.replace(figures_row(node, (0.0, 0.0)), resting_since=(NOW - 9_000.0, None))
        for since_s, said in ((20_000.0, "2h"), (600.0, "10m")):
            state = state_of(node, figures, replicas={"r": replica_row("r", "chat", "n", since_s=since_s)})
            holdings = Holdings()
            holdings.update(state, None)
            held = next(iter(holdings.idle(state).values()))
            assert idle_cell(held, seen_of(state)) == (said, "warn")


class TestBreakers:
    def state(self) -> ClusterState:
        return ClusterState().apply(snapshot(showcase.rows()), at=NOW)[0]

    def test_a_replica_says_on_how_many_routers_and_why(self) -> None:
        state = self.state()
        said = sentence_of(state, state.replicas["qwen3-coder-30b-33f1"])
        assert said == ("breaker open: routers send it nothing; on 1 of 2 routers, last failure: status 503")
        assert "half-open" in sentence_of(state, state.replicas["qwen2.5-7b-d805"])
        assert sentence_of(state, state.replicas[showcase_names.REPLICA]) == ""

    def test_a_model_says_how_many_of_its_replicas_are_kept_back(self) -> None:
        assert open_of(self.state(), showcase_names.MODEL) == "1 of 4 replicas kept from requests by a breaker"
        assert open_of(self.state(), "llama-3.3-70b") == ""

    @pytest.mark.asyncio
    @pytest.mark.parametrize("size", [(80, 24), (120, 40)])
    async def test_views_and_the_page_show_it(self, size: tuple[int, int]) -> None:
        console = console_in("normal")
        async with shown(console, size=size) as pilot:
            await visit(console, pilot, Place(view="replicas"))
            view = console.main.view
            assert view is not None
            view.set_filter("state:breaker")
            await pilot.pause()
            assert "✗ breaker" in screen_text(console)
            assert "! probing" in screen_text(console)
            subject = Subject(target=Target.REPLICA, key="qwen3-coder-30b-33f1")
            await visit(console, pilot, Place(view="replica", subject=subject))
            assert "last failure: status 503" in " ".join(screen_text(console).split())


@pytest.mark.asyncio
async def test_every_mode_has_its_legend_on_the_screen() -> None:
    console = console_in("normal")
    async with shown(console, size=(200, 60)) as pilot:
        await visit(console, pilot, Place(view="gpus"))
        for key, words in (("b", "any kernel ran"), ("m", "by whomever"), ("t", "is degrees"), ("w", "SMs had work")):
            await pilot.press(key)
            await pilot.pause()
            assert words in screen_text(console)


@pytest.mark.asyncio
async def test_the_words_leave_before_the_card_does() -> None:
    console = console_in("normal")
    async with shown(console, size=(120, 34)) as pilot:
        await visit(console, pilot, Place(view="gpus"))
        view = map_view(console)
        for node in ("gpu03", "gpu04", "gpu08"):
            view.map.move_to(node, 0)
            await pilot.pause()
            side = view.query_one("#gpus-side")
            assert all(panel.region.bottom <= side.region.bottom for panel in side.children if panel.display)


def map_view(console: Console) -> Gpus:
    view = console.main.view
    assert isinstance(view, Gpus)
    return view


def test_in_ascii_the_sort_mark_is_no_letter_of_the_word() -> None:
    use_signs(ASCII)
    for descending in (False, True):
        mark = sort_mark(descending)
        assert mark.startswith(" ")
        assert not any(sign.isalnum() for sign in mark)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_cursor_never_leaves_the_window(size: tuple[int, int]) -> None:
    console = console_with(wide_fleet(200, quiet=False), start="gpus")
    async with shown(console, size=size) as pilot:
        view = map_view(console)
        await pilot.press("z")
        for key, node in (("end", "node0199"), ("pageup", ""), ("home", "node0000"), ("pagedown", "")):
            await pilot.press(key)
            await settle(console, pilot)
            line = view.map.line
            assert isinstance(line, NodeLine)
            assert line.node == node or not node
            assert any(f"▌{line.node}" in shown_line for shown_line in screen_lines(console))
