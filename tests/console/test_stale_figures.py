"""What a node that is not heard said last is never shown as now: it is dimmed, with its age, or it is left out."""

from typing import TypeVar

import msgspec
import pytest

from console.places import Place, Subject
from console.screens.nodes import LOW_DISK
from console.screens.nodes import SPEC as NODES
from console.screens.replica import CARDS, cards_on
from console.screens.replicas import SPEC as REPLICAS
from console.signs import signs
from console.state.attention import problems
from console.state.cards import CardAt, Mode, card_at, cards_of
from console.state.cluster import ClusterState
from console.state.history import History
from console.widgets.card_facts import card_lines, short_card_lines
from console.widgets.columns import Seen, TableSpec
from console.widgets.gpu_cells import cell, notes
from console.widgets.lines import Line
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.rows import FiguresRow, NodeRow, ReplicaRow
from llmgw.api.types import ProgressInfo
from llmgw.core.throttle import POWER_CAP, READ
from tests.console.harness import console_with, screen_text, shown, tell, until
from tests.console.test_steady import map_names
from tests.support.fleet_rows import GB, NOW, figures_row, model_row, node_row, replica_row, snapshot

T = TypeVar("T")
AGO_S = 730.0
"""How long ago the node spoke: twelve minutes and a bit."""
CARD_FIGURES = ("work", "busy", "memory", "power", "heat")
"""Columns of a node's cards that are of a moment."""
NODE_FIGURES = ("work", "power", "cpu", "load", "memory", "disk")
"""Likewise of the nodes."""
UNHEARD = pytest.mark.parametrize("state", ["silent", "lost"])


def node_of(state: str) -> tuple[NodeRow, FiguresRow]:
    """A node `n`: a card that is held, one that wears out while it is, one that a stranger uses."""
    node = node_row("n", 3, held={0: "r", 1: "r"}, worn=(1,), state=state)
    figures = msgspec.structs.replace(
        figures_row(node, (80.0, 35.0, 62.0)),
        heard=NOW - (AGO_S if state in ("silent", "lost") else 1.0),
        cpu_percent=37.0,
        disk_free_bytes=GB,
        network_in_bytes_per_s=1.2e9,
        temperature_c=(91.0, 60.0, 50.0),
        sm_clock_mhz=(1980.0,) * 3,
        throttle_reasons=(READ | POWER_CAP,) * 3,
    )
    return node, figures


def seen_of(state: str, replica: ReplicaRow | None = None, *, now: float = NOW, model: str = "ready") -> Seen:
    """The node, and what runs on it."""
    node, figures = node_of(state)
    replica = replica or replica_row("r", "chat", "n", cards=tuple(card.uuid for card in node.cards[:2]))
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "nodes": {"n": node},
        "figures": {"n": figures},
        "replicas": {"r": replica},
        "models": {"chat": model_row("chat", model)},
    }
    return Seen(state=ClusterState().apply(snapshot(rows), at=NOW)[0], history=History(), now=now)


def card_of(seen: Seen, place: int) -> CardAt:
    on = card_at(seen.state, "n", place)
    assert on is not None
    return on


def cells_of(spec: TableSpec[T], row: T, seen: Seen) -> dict[str, list[Span]]:
    """What a row shows, by column."""
    found = {column.key: column.cell(row, seen) for column in spec.columns}
    return {key: [*(cell if isinstance(cell, list) else [cell])] for key, cell in found.items()}


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def figure_tones(lines: list[Line]) -> set[str]:
    """Tones of all spans that have a digit, beyond the names and the sentence of how old they are."""
    return {tone for line in lines for text, tone in line[1:] if any(sign.isdigit() for sign in text)}


@UNHEARD
@pytest.mark.parametrize(
    ("mode", "texts"),
    [(Mode.WORK, [" 80 ", " 35!", " ╌╌ "]), (Mode.TEMPERATURE, [" 91 ", " 60!", " ╌╌ "])],
)
def test_a_cell_is_dim_and_has_no_mark_of_what_may_be_over(state: str, mode: Mode, texts: list[str]) -> None:
    seen = seen_of(state)
    found = [cell(card_of(seen, place), mode) for place in range(3)]
    assert [text for text, _ in found] == texts
    assert [tone for _, tone in found] == ["dim", "dim", "unused"]
    heard = [cell(card_of(seen_of("connected"), place), mode) for place in range(3)]
    assert "dim" not in {tone for _, tone in heard}
    assert heard[0][0].strip()[-1] in "~^"


@UNHEARD
def test_beside_the_cells_stands_how_old_they_are_and_nothing_under_way(state: str) -> None:
    step = ProgressInfo(phase="fetch", done_bytes=61 * GB, total_bytes=100 * GB)
    coming = replica_row("r", "chat", "n", "fetching", progress=step)
    seen = seen_of(state, coming)
    said = "".join(text for text, _ in notes(seen.state, seen.state.nodes["n"], cards_of(seen.state, "n"), seen.now))
    assert said.startswith(f"{state} 12m")
    assert "61%" not in said
    heard = seen_of("connected", coming)
    assert ("fetching 61%", "info") in notes(heard.state, heard.state.nodes["n"], cards_of(heard.state, "n"), NOW)


@UNHEARD
def test_the_panel_says_of_when_its_figures_are_and_nothing_is_held_back(state: str) -> None:
    seen, heard = seen_of(state), seen_of("connected")
    lines = card_lines(seen, card_of(seen, 0), 60)
    text = text_of(lines)
    assert "figures of 12m ago, not heard since" in text
    assert f"n {state}" in text
    assert "at its power limit" not in text
    assert "slowed" not in text
    begin = next(at for at, line in enumerate(lines) if line and line[0][0].startswith("figures"))
    assert figure_tones(lines[begin + 1 :]) <= {"dim", "spark"}
    assert "1,980 MHz" in text_of(lines[begin + 1 :])
    assert "12m ago" in text_of(short_card_lines(seen, card_of(seen, 0), 80, 6))
    now = text_of(card_lines(heard, card_of(heard, 0), 60))
    assert "slowed" in now
    assert " ago" not in now


@UNHEARD
def test_a_nodes_cards_are_dim_and_say_why(state: str) -> None:
    seen = seen_of(state)
    for on in cards_on(seen.state.nodes["n"], seen).values():
        cells = cells_of(CARDS, on, seen)
        assert {tone for key in CARD_FIGURES for _, tone in cells[key]} == {"dim"}
        said = text_of([cells["problem"]])
        assert said.startswith("figures of 12m ago")
        assert "held back" not in said
    heard = seen_of("connected")
    for on in cards_on(heard.state.nodes["n"], heard).values():
        cells = cells_of(CARDS, on, heard)
        assert "dim" not in {tone for key in CARD_FIGURES for _, tone in cells[key]}
        assert "held back: at its power limit" in text_of([cells["problem"]])


@UNHEARD
def test_in_the_table_of_nodes_they_are_dim_beside_the_silence_and_sorted_as_unknown(state: str) -> None:
    seen, heard = seen_of(state), seen_of("connected")
    cells = cells_of(NODES, seen.state.nodes["n"], seen)
    assert cells["heard"] == [("12m", "warn")]
    assert all(tone == "dim" or text == signs().dash for key in NODE_FIGURES for text, tone in cells[key])
    assert LOW_DISK not in text_of([cells["problem"]])
    assert LOW_DISK in text_of([cells_of(NODES, heard.state.nodes["n"], heard)["problem"]])
    (cpu,) = [column for column in NODES.columns if column.key == "cpu"]
    assert cpu.sort is not None
    assert cpu.sort(seen.state.nodes["n"], seen) is None
    assert cpu.sort(heard.state.nodes["n"], heard) == 37.0


@UNHEARD
def test_a_replica_of_it_says_which_node_is_not_heard(state: str) -> None:
    step = ProgressInfo(phase="fetch", done_bytes=61 * GB, total_bytes=100 * GB)
    coming = replica_row("r", "chat", "n", "fetching", progress=step)
    seen = seen_of(state, coming, model="fetching")
    cells = cells_of(REPLICAS, coming, seen)
    assert {tone for key in ("state", "progress") for _, tone in cells[key]} == {"dim"}
    assert text_of([cells["message"]]).startswith(f"n is {state}, heard 12m ago")
    (problem,) = [each for each in problems(seen.state, NOW) if each.target is Target.MODEL]
    assert "61%" not in problem.sentence
    heard = seen_of("connected", coming, model="fetching")
    cells = cells_of(REPLICAS, coming, heard)
    assert ("fetching", "info") in cells["state"]
    assert "is silent" not in text_of([cells["message"]])
    assert any("61%" in each.sentence for each in problems(heard.state, NOW))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_nodes_page_has_its_last_word_with_its_age_and_charts_end(size: tuple[int, int]) -> None:
    node, figures = node_of("lost")
    console = console_with(snapshot({"nodes": {"n": node}, "figures": {"n": figures}}), start="nodes")
    async with shown(console, size=size):
        console.go(Place(view="node", subject=Subject(target=Target.NODE, key="n")))
        await until(lambda: "1.2 GB/s" in screen_text(console))
        text = " ".join(screen_text(console).split())
        assert "37% load 24.5 12m ago" in text
        assert "1.2 GB/s in 12m ago" in text
        # The figure at the end of a chart is of now.
        assert text.count("37%") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("view", ["overview", "gpus"])
async def test_a_map_goes_on_counting_while_nothing_is_heard(view: str) -> None:
    node, figures = node_of("lost")
    now = [NOW]
    console = console_with(snapshot({"nodes": {"n": node}, "figures": {"n": figures}}), start=view)
    console.clock = lambda: now[0]
    async with shown(console, size=(120, 40)) as pilot:
        assert "lost 12m" in screen_text(console)
        now[0] += 60.0
        await tell(console, pilot)
        await until(lambda: "lost 13m" in screen_text(console))


@pytest.mark.asyncio
async def test_on_a_low_screen_no_busier_node_hides_one_that_is_not_heard() -> None:
    rows: dict[str, dict[str, msgspec.Struct]] = {"nodes": {}, "figures": {}}
    for number in range(12):
        name = f"gpu{number:02d}"
        # Each of them has something to tell: cards that are held and do nothing.
        node = node_row(name, 2, held={0: "r", 1: "q"}, state="lost" if number == 7 else "connected")
        rows["nodes"][name], rows["figures"][name] = node, figures_row(node, (0.0, 90.0))
    console = console_with(snapshot(rows))
    async with shown(console, size=(80, 24)):
        names = map_names(console)
        assert 0 < len(names) < 12
        assert "gpu07" in names
