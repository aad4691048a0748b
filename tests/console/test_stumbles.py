"""What an operator stumbles over: a mark that is not the key's, zeros where nothing is known, a word cut off."""

import re

import msgspec
import pytest

from console.figures import pair, rate
from console.screens.explain import explanation_lines
from console.screens.fit import verdict_lines
from console.screens.help import section_lines
from console.screens.node import NodePage
from console.state.attention import problems
from console.state.cards import card_key
from console.widgets.order import HOLD_S
from llmgw.api.types import Explanation
from llmgw.api.watch import WeightsRow
from llmgw.cli.console import asked_for_c
from llmgw.core.catalog import ModelFacts
from llmgw.core.fit import estimate
from llmgw.core.verdicts import CardVerdict, NodeVerdict
from tests.console.harness import console_with, fed, screen_lines, shown, tell, until
from tests.console.scenes import PAGES, console_in, visit
from tests.support.fleet_rows import NOW, Rows, cluster_row, delta, model_row, node_row, snapshot, traffic_row


def flat(lines: list[str]) -> str:
    """Lines as one, blanks once."""
    return re.sub(r"\s+", " ", " ".join(lines))


@pytest.mark.asyncio
async def test_the_line_shows_the_mark_of_the_key_that_opened_it() -> None:
    console = console_in("normal")
    async with shown(console, size=(80, 24)) as pilot:
        for key, mark in (("colon", ":"), ("slash", "/"), ("colon", ":")):
            await pilot.press("2", key)
            await pilot.pause()
            assert screen_lines(console)[-2].startswith(mark), key
            await pilot.press("escape")


@pytest.mark.asyncio
async def test_a_worn_card_on_the_overview_is_told_whole_and_opened_on_its_own_row() -> None:
    worn = "uncorrectable memory errors, no spare rows left to remap: replace it before it takes a replica with it"
    node = node_row("gpu01", worn=(7,))
    bad = msgspec.structs.replace(node.cards[7], problem=worn)
    node = msgspec.structs.replace(node, cards=(*node.cards[:7], bad))
    console = console_with(snapshot({"cluster": {"cluster": cluster_row()}, "nodes": {"gpu01": node}}))
    async with shown(console, size=(80, 24)) as pilot:
        assert worn in flat(screen_lines(console))
        await pilot.press("enter")
        await until(lambda: isinstance(console.main.view, NodePage))
        await pilot.pause()
        page = console.main.view
        assert isinstance(page, NodePage)
        assert page.table.cursor_key == card_key("gpu01", bad)
        assert worn in flat(screen_lines(console))


@pytest.mark.asyncio
async def test_the_busiest_models_are_in_sight_while_nobody_walks_them() -> None:
    names = [f"m{number}" for number in range(30)]
    models = {name: model_row(name) for name in names}
    console = console_with(snapshot({"cluster": {"cluster": cluster_row()}, "models": models}))
    async with shown(console, size=(80, 24)) as pilot:
        # The row the list began with is now the least busy one.
        later = NOW + HOLD_S + 1
        console.clock = lambda: later
        traffic = {name: traffic_row(tokens=float(number)) for number, name in enumerate(names)}
        await tell(console, pilot, delta({"traffic": traffic}, now=later))
        lines = screen_lines(console)
        head = next(place for place, line in enumerate(lines) if "tok/s" in line)
        assert "m29" in lines[head + 1]


@pytest.mark.asyncio
async def test_nothing_is_counted_before_anything_is_heard() -> None:
    console = console_in("loading")
    async with shown(console, size=(80, 24)) as pilot:
        for key in "23478":
            await pilot.press(key)
            await pilot.pause()
            assert " 0 " not in screen_lines(console)[2], key


def test_a_little_of_much_is_never_written_with_an_exponent() -> None:
    assert pair(64e6, 1.1e12) == "<0.01/1.1 TB"
    assert pair(0.0, 1.1e12) == "0/1.1 TB"
    assert pair(67.7e9, 7.68e12) == "0.07/7.68 TB"
    assert pair(61e9, 188e9) == "61/188 GB"


@pytest.mark.asyncio
async def test_a_sentence_takes_the_place_of_the_one_before_about_the_same_thing() -> None:
    console = console_in("normal")
    async with shown(console, size=(80, 24)) as pilot:
        for sentence in ("gpu01 cordoned: nothing new", "qwen: 1 replica → 2", "gpu01 open again", "qwen: 2 → 3"):
            console.toast(sentence)
            await pilot.pause()
        assert [note.message for note in console._notifications] == ["gpu01 open again", "qwen: 2 → 3"]
        console.toast("gpu01 cannot be drained", error=True)
        await pilot.pause()
        console.toast("gpu01 cordoned: nothing new")
        await pilot.pause()
        assert [note.message for note in console._notifications][1:] == [
            "gpu01 cannot be drained",
            "gpu01 cordoned: nothing new",
        ]


def test_cards_of_which_the_same_is_to_be_said_share_a_line() -> None:
    def refused(index: int, message: str) -> CardVerdict:
        return CardVerdict(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA RTX 4090 (simulated)",
            fits=False,
            rule="class",
            message=message,
        )

    cards = (*(refused(index, "is 4090-24g, not b200-180g") for index in range(7)), refused(7, "is worn"))
    verdict = NodeVerdict(node="gpu01", profile="b200", fits=False, rule="class", message="no card", cards=cards)
    answer = Explanation(model="m", dry_run=False, would_place=None, message="nowhere", verdicts=(verdict,))
    lines = ["".join(text for text, _ in line) for line in explanation_lines(answer)]
    assert lines[-2:] == [
        "    ✗ cards 0–6   NVIDIA RTX 4090 (simulated) is 4090-24g, not b200-180g",
        "    ✗ card 7      NVIDIA RTX 4090 (simulated) is worn",
    ]


def test_what_is_not_known_of_weights_is_no_zero() -> None:
    need = estimate(ModelFacts(architecture="", weights_bytes=0), engine="llamacpp", context_length=4096, slots=4)
    answer = Explanation(
        model="m", dry_run=False, would_place=None, message="", need_bytes=need.total_bytes, need_detail=need.detail
    )
    said = "\n".join("".join(text for text, _ in line) for line in explanation_lines(answer))
    assert "needs        at least 150 MB  weights and KV, known once they are looked up + engine 150 MB" in said
    assert "0 B" not in said


def test_refusals_of_nodes_take_no_more_columns_than_they_need() -> None:
    verdicts = [
        NodeVerdict(node="sim-4090-05", profile="cpu", fits=True, message="fits: needs 64 MB of memory, 1.09 TB free"),
        NodeVerdict(node="vm", profile="cpu", fits=False, rule="cordoned", message="cordoned"),
    ]
    lines = ["".join(text for text, _ in line) for line in verdict_lines(verdicts, "sim-4090-05")]
    assert lines == [
        "✓ sim-4090-05  goes here  needs 64 MB of memory, 1.09 TB free",
        "✗ vm           cordoned   cordoned",
    ]


@pytest.mark.asyncio
async def test_a_source_on_its_way_moves_nothing_and_the_ways_to_write_one_stay_in_sight() -> None:
    console = console_in("normal")
    async with shown(console, size=(120, 40)) as pilot:
        await pilot.press("2", "s")
        await pilot.pause()
        place = next(y for y, line in enumerate(screen_lines(console)) if "GPU class" in line)
        for letter in "hf:":
            await pilot.press(letter)
            await pilot.pause()
            lines = screen_lines(console)
            assert "hf:ORG/REPO[@REVISION][:FILE]" in flat(lines) or letter == ":"
            if letter != ":":
                assert "GPU class" in lines[place], letter


@pytest.mark.asyncio
async def test_no_key_is_offered_for_a_list_that_is_not_there() -> None:
    console = console_in("empty")
    async with shown(console, size=(80, 24)):
        assert "tab models" not in screen_lines(console)[-1]


@pytest.mark.asyncio
async def test_no_problem_hides_another_of_the_same_row() -> None:
    node = node_row("gpu01", problems=("the clock is 3.2 s off", "the disk is full"))
    failed = WeightsRow(source="hf:org/m", id="w", state="failed", message="no space left", models=("m",))
    rows: Rows = {
        "cluster": {"cluster": cluster_row()},
        "nodes": {"gpu01": node},
        "models": {"m": model_row("m", "partial", ready=1, wanted=2)},
        "weights": {"hf:org/m": failed},
    }
    console = console_with(snapshot(rows))
    async with shown(console, size=(120, 40)):
        said = flat(screen_lines(console))
        for sentence in ("the clock is 3.2 s off", "the disk is full", "cannot be fetched: no space left", "1 of 2"):
            assert sentence in said
        words = re.findall(r"[│▌ ] ([✗!]) ", "\n".join(screen_lines(console)))
        assert words[:4] == ["✗", "!", "!", "!"]


def test_a_failed_fetch_that_its_model_speaks_of_is_one_problem() -> None:
    failed = WeightsRow(source="hf:org/m", id="w", state="failed", message="no space left", models=("m",))
    model = model_row("m", "failed", ready=0, message="weights cannot be fetched: no space left")
    store = fed([snapshot({"models": {"m": model}, "weights": {"hf:org/m": failed}})])
    assert [problem.sentence for problem in problems(store.state, NOW)] == ["weights cannot be fetched: no space left"]


def test_a_share_is_never_written_with_an_exponent() -> None:
    assert [rate(share) for share in (0.021, 3.3, 9.9, 42.4, 100.0)] == ["0.021%", "3.3%", "9.9%", "42%", "100%"]


@pytest.mark.asyncio
async def test_why_there_is_no_log_is_told_whole() -> None:
    console = console_in("failure")
    async with shown(console, size=(80, 24)) as pilot:
        await visit(console, pilot, PAGES["logs"])
        await until(lambda: "gpu03 is silent for 38 s" in flat(screen_lines(console)))


def test_an_explanation_goes_on_below_itself() -> None:
    told = "nodes with nothing to tell in one line, or each in its own"
    lines = section_lines([("map", [("z", "fold", told), ("ctrl+a", "mark all", "")])], 40)
    assert ["".join(text for text, _ in line) for line in lines] == [
        "map",
        "  z      fold      nodes with nothing ",
        "                   to tell in one line, ",
        "                   or each in its own",
        "  ctrl+a mark all  ",
    ]


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, True),
        # What Python makes of LANG=C.
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "POSIX"}, True),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_who_asks_for_the_c_locale_gets_ascii(environment: dict[str, str], asked: bool) -> None:
    assert asked_for_c(environment) is asked
