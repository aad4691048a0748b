"""`ctl top`: what is shown of the feed, in which order, and that it fits the terminal it is drawn on."""

import io
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import Unreachable
from llmgw.api.rows import FiguresRow
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import Message
from llmgw.cli.context import Context
from llmgw.cli.groups.top import screen, shares, top
from llmgw.cli.output import Output
from llmgw.cli.top_rows import Feed, Top, top_of
from llmgw.core.text import display_width
from tests.support.fleet_rows import delta, figures_row, small_fleet, small_rows, snapshot

HERE = ServerTarget(socket=Path("/run/llmgw/admin.sock"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Recorded:
    """A client whose feed says what was recorded and then breaks off."""

    target = HERE

    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    def watch(self, _: object) -> Iterator[Message]:
        yield from self._messages
        raise Unreachable("the server went away")


def shown(order: str = "work", *more: Message) -> Top:
    feed = Feed()
    for message in (small_fleet(), *more):
        feed.take(message)
    return top_of(feed, order)


def run(out: Output, *messages: Message, once: bool = False) -> None:
    client = cast("AdminClient", Recorded(*messages))
    top(Context(args=Namespace(by="work", once=once), out=out, _client=client))


class TestRows:
    def test_the_most_work_comes_first_and_what_does_not_tell_last(self) -> None:
        cards = shown().cards
        works = [card.work_percent for card in cards if card.work_percent is not None]
        assert works == sorted(works, reverse=True)
        assert [card.work_percent for card in cards[len(works) :]] == [None] * (len(cards) - len(works))

    @pytest.mark.parametrize("order", ["power", "memory"])
    def test_another_figure_orders_all_three(self, order: str) -> None:
        found = shown(order)
        for lines in (
            [card.power_w if order == "power" else card.memory_used_bytes for card in found.cards],
            [model.power_w if order == "power" else model.memory_bytes for model in found.models],
        ):
            known = [value for value in lines if value is not None]
            assert known == sorted(known, reverse=True)

    def test_a_delta_changes_its_node_and_a_node_that_goes_is_gone(self) -> None:
        rows = small_rows()
        node = rows["nodes"]["gpu01"]
        quiet = figures_row(node, (0.0,) * 8)  # type: ignore[arg-type]
        after = shown("work", delta({"figures": {"gpu01": quiet}}))
        assert {card.work_percent for card in after.cards if card.node == "gpu01"} == {0.0}
        gone = shown("work", delta(gone={"nodes": ("gpu01",)}))
        assert "gpu01" not in {card.node for card in gone.cards} | {line.node for line in gone.nodes}

    def test_a_held_card_that_rests_says_for_how_long(self) -> None:
        rows = small_rows()
        figures = cast("FiguresRow", rows["figures"]["gpu01"])
        since = (1_772_368_807.0, *(None,) * 7)
        resting = msgspec.structs.replace(figures, resting_since=since)
        cards = [card for card in shown("work", delta({"figures": {"gpu01": resting}})).cards if card.node == "gpu01"]
        assert {card.index: card.idle_s for card in cards if card.idle_s is not None} == {0: 60.0}

    def test_a_row_of_a_newer_server_is_left_out(self) -> None:
        message = small_fleet()
        message.rows["nodes"]["odd"] = msgspec.Raw(b'{"name": 7}')
        feed = Feed()
        feed.take(message)
        assert "odd" not in {line.node for line in top_of(feed, "work").nodes}


class TestScreen:
    @pytest.mark.parametrize(("columns", "rows"), [(20, 5), (80, 24), (120, 40), (200, 60)])
    def test_it_fits(self, columns: int, rows: int) -> None:
        lines = screen(shown(), "work", str(HERE), columns, rows)
        assert len(lines) < rows
        assert max(map(display_width, lines)) <= columns

    def test_what_does_not_fit_is_counted(self) -> None:
        found = shown()
        lines = screen(found, "work", str(HERE), 120, 24)
        left_out = [line for line in lines if line.startswith("and ")]
        assert any(line.endswith("more cards") for line in left_out)

    def test_all_of_it_stands_on_a_high_terminal(self) -> None:
        found = shown()
        lines = screen(found, "work", str(HERE), 250, 500)
        assert not [line for line in lines if line.startswith("and ")]
        assert len(lines) == 1 + 3 * 2 + len(found.models) + len(found.nodes) + len(found.cards)

    def test_room_that_one_does_not_need_is_the_others(self) -> None:
        assert shares([4, 40, 100], 60) == [4, 28, 28]
        assert shares([4, 40, 100], 300) == [4, 40, 100]


class TestCommand:
    def test_on_a_terminal_it_is_drawn_anew_and_the_terminal_is_given_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setenv("LINES", "40")
        terminal = Terminal()
        with pytest.raises(Unreachable):
            run(Output(json=False, out=terminal), small_fleet(), delta())
        text = terminal.getvalue()
        assert text.startswith("\x1b[?1049h")
        assert text.endswith("\x1b[?1049l")
        assert text.count("\x1b[H") == 2
        assert "qwen2.5-7b" in text

    def test_a_pipe_and_once_get_it_plain(self) -> None:
        for out, once in ((io.StringIO(), False), (Terminal(), True)):
            run(Output(json=False, out=out), small_fleet(), once=once)
            text = out.getvalue()
            assert "\x1b" not in text
            for there in ("MODEL", "TOKENS/S", "HELD BY", "qwen2.5-7b"):
                assert there in text

    def test_scripts_get_a_document(self) -> None:
        out = io.StringIO()
        run(Output(json=True, out=out), small_fleet())
        found = json.loads(out.getvalue())
        assert found.keys() == {"at", "models", "nodes", "cards"}
        assert found["cards"][0]["work_percent"] >= found["cards"][1]["work_percent"]

    def test_a_feed_that_says_nothing_is_an_error(self) -> None:
        with pytest.raises(Unreachable):
            run(Output(json=False, out=io.StringIO()))

    def test_names_from_outside_do_nothing_to_the_terminal(self) -> None:
        rows = small_rows()
        node = msgspec.structs.replace(rows["nodes"]["gpu01"], name="x\x1b[2J\u202e")
        rows["nodes"]["x"] = node
        feed = Feed()
        feed.take(snapshot(rows))
        assert "\x1b" not in "".join(screen(top_of(feed, "work"), "work", "s", 200, 200))
