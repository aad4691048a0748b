"""Monitor: what it asks for, what it draws, how the feed goes on with it, and what it says when it can draw nothing."""

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from console.app import Console
from console.figures import percent
from console.lines import candidates
from console.monitoring import chart_place
from console.places import Place, Subject
from console.screens.monitor import Monitor
from console.screens.monitor_words import AFTER_ERROR_S
from console.state.monitored import CHARTS, SPANS, STEP_S, Points, figures_shown, values_of
from console.widgets.chart import Drawn, TimeChart, _parts
from llmgw.api.actions import Target
from llmgw.api.problems import Refused
from llmgw.api.series import CLUSTER, Of, Scope, Series, SeriesAnswer, figures_of
from llmgw.api.watch import ALL_MODELS, TrafficRow
from tests.console import showcase, showcase_names
from tests.console.harness import screen_lines, screen_text, shown, tell, until
from tests.console.scenes import StillAdmin, console_in, disconnect, settle, visit
from tests.console.showcase_series import charted
from tests.support.fleet_rows import NOW, delta

MONITOR = Place(view="monitor")
MODEL = Of(Scope.MODEL, showcase_names.MODEL)
NODE = Of(Scope.NODE, showcase_names.NODE)


class AskedAdmin(StillAdmin):
    """Remembers what was asked, and refuses while told to."""

    def __init__(self) -> None:
        super().__init__(away=False)
        self.asked: list[tuple[str, float, float | None]] = []
        self.refusal = ""
        self.note = ""

    def series(
        self,
        figures: Sequence[str],
        of: Sequence[str] = ("cluster",),
        *,
        start: float | None = None,
        end: float | None = None,
        step_s: float | None = None,
    ) -> SeriesAnswer:
        assert start is not None
        self.asked.append((of[0], start, step_s))
        if self.refusal:
            raise Refused(self.refusal)
        return msgspec.structs.replace(charted(figures, of[0], start, step_s), note=self.note)


def a_console(*, ascii_only: bool = False) -> tuple[Console, AskedAdmin]:
    console = console_in("normal", ascii_only=ascii_only)
    admin = AskedAdmin()
    console.admin = admin
    return console, admin


def monitor_of(console: Console) -> Monitor:
    view = console.main.view
    assert isinstance(view, Monitor)
    return view


def at(console: Console, seconds: float) -> None:
    """The clock stands that much after NOW, and a second has passed."""
    console.clock = lambda: NOW + seconds
    console._tick()


@pytest.mark.asyncio
async def test_it_asks_once_and_draws_what_it_was_told() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await pilot.press("6")
        await settle(console, pilot)
        await until(lambda: bool(monitor_of(console)._charts))
        await settle(console, pilot)
        text = screen_text(console)
        assert admin.asked == [("cluster", NOW - 300, STEP_S)]
        work = monitor_of(console).points.of["work"][-1]
        assert f"━ work {percent(work)}" in text
        for name in ("requests", "tokens", "power", "first token", "temperature"):
            assert f" {name} · " in text
        assert "work: how much of the chip works; multiprocessors active where they are counted" in text
        assert "live" in screen_lines(console)[2]
        # Braille where there are lines, and time from five minutes ago to now.
        assert any("⠀" < letter <= "⣿" for letter in text)
        assert "-5 min" in text
        assert " now " in text


@pytest.mark.asyncio
async def test_another_span_is_asked_for_and_shown() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        for span in (*SPANS[1:], SPANS[0]):
            await pilot.press("p")
            await settle(console, pilot)
            assert admin.asked[-1] == ("cluster", NOW - span.seconds, STEP_S if span is SPANS[0] else None)
            assert monitor_of(console).span is span
        await pilot.press("P")
        await settle(console, pilot)
        assert admin.asked[-1][1] == NOW - 7 * 86400
        assert "live" not in screen_lines(console)[2]
        # Days at the foot of a week.
        assert "Sun" in screen_text(console)


@pytest.mark.asyncio
async def test_the_feed_goes_on_with_the_shortest_span_and_nobody_is_asked_again() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        view = monitor_of(console)
        count = view.points.count
        for step in range(1, 4):
            row = TrafficRow(requests_per_s=200.0 + step, output_tokens_per_s=1_000.0)
            now = NOW + step * STEP_S + 1
            await tell(console, pilot, delta({"traffic": {ALL_MODELS: row}}, rev=900 + step, now=now))
            for second in range(5):
                at(console, step * STEP_S + 1 + second)
        await until(lambda: not view._due)
        await settle(console, pilot)
        assert [round(point) for point in view.points.of["requests"][-3:]] == [201, 202, 203]
        assert view.points.count == count
        assert len(admin.asked) == 1
        assert "requests · ━ 203/s" in screen_text(console)
        # After a while the server's own word replaces the feed's.
        at(console, SPANS[0].again_s + 1)
        await settle(console, pilot)
        assert len(admin.asked) == 2


@pytest.mark.asyncio
async def test_longer_spans_are_asked_for_again_now_and_then_and_not_every_second() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await pilot.press("p")
        await settle(console, pilot)
        for second in range(1, 31):
            at(console, float(second))
            await pilot.pause()
        assert [start for _, start, _ in admin.asked[1:]] == [NOW - 3600, NOW + 15 - 3600, NOW + 30 - 3600]


@pytest.mark.asyncio
async def test_a_line_says_so_where_the_charts_would_be() -> None:
    console, admin = a_console()
    admin.refusal = "unix:/x does not answer within 60 s"
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        text = screen_text(console)
        assert admin.refusal in text
        assert "asking again every 15 s; a asks at once" in text
        assert "requests ·" not in text
        # It answers again: nothing needs to be pressed.
        admin.refusal = ""
        at(console, AFTER_ERROR_S)
        await settle(console, pilot)
        assert "requests ·" in screen_text(console)
        assert "asking again" not in screen_text(console)


@pytest.mark.asyncio
async def test_what_is_not_as_it_was_asked_for_stands_above_the_charts() -> None:
    console, admin = a_console()
    admin.note = "the metrics store at http://m:9090 cannot be read: it answers 503; showing the last 24 h"
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        assert admin.note in screen_lines(console)[3]
        assert "requests ·" in screen_text(console)


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "columns"), [((80, 24), 1), ((120, 40), 2), ((200, 60), 3)])
async def test_as_many_charts_abreast_as_are_readable(size: tuple[int, int], columns: int) -> None:
    console, _ = a_console()
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        plots = [plot for panel, plot in monitor_of(console)._charts.values() if panel.display]
        top = [plot for plot in plots if plot.region.y == plots[0].region.y]
        assert len(top) == columns
        whole = [plot for plot in plots if plot.region.bottom < size[1]]
        assert len(whole) >= 2
        assert all(plot.size.height >= 6 and plot.size.width >= 50 for plot in whole)


@pytest.mark.asyncio
async def test_from_a_model_a_node_and_a_replica_and_back() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        for target, key, of in (
            (Target.MODEL, showcase_names.MODEL, f"model:{showcase_names.MODEL}"),
            (Target.NODE, showcase_names.NODE, f"node:{showcase_names.NODE}"),
            (Target.REPLICA, showcase_names.REPLICA, f"model:{showcase_names.MODEL}"),
        ):
            page = Place(view=target.value, subject=Subject(target=target, key=key))
            await visit(console, pilot, page)
            await pilot.press("m")
            await settle(console, pilot)
            assert console.main.trail.here.view == "charts"
            assert admin.asked[-1][0] == of
            assert of.partition(":")[2] in screen_lines(console)[2]
            await pilot.press("escape")
            await settle(console, pilot)
            assert console.main.trail.here == page


@pytest.mark.asyncio
async def test_the_line_names_what_to_monitor() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        for text, of in (
            (f"monitor model:{showcase_names.MODEL}", MODEL),
            (f"monitor {showcase_names.MODEL}", MODEL),
            (f"monitor {showcase_names.NODE}", NODE),
            (f"monitor card:{showcase_names.NODE}/3", Of(Scope.CARD, f"{showcase_names.NODE}/3")),
            ("monitor cluster", CLUSTER),
        ):
            console.run_line(text)
            await settle(console, pilot)
            assert console.main.trail.here == chart_place(of)
            assert admin.asked[-1][0] == str(of)
        console.run_line("monitor model:gpt-9")
        await settle(console, pilot)
        assert any("no model is called 'gpt-9': cluster, model:NAME" in note.message for note in console._notifications)
        assert console.main.trail.here == MONITOR


@pytest.mark.asyncio
async def test_the_picker_completes_names() -> None:
    console, _ = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await pilot.press("o")
        assert console.main.prompt.is_open
        await pilot.press(*"node:gpu04", "enter")
        await settle(console, pilot)
        assert console.main.trail.here == chart_place(NODE)
        state = console.store.state
        assert candidates("monitor clu", state) == ["monitor cluster"]
        assert "monitor model:embed-m3" in candidates("monitor model:", state)
        # Cards are thousands: they come once one begins with them.
        assert candidates("monitor ca", state) == []
        assert candidates(f"monitor card:{showcase_names.NODE}/7", state) == [f"monitor card:{showcase_names.NODE}/7"]


@pytest.mark.asyncio
async def test_cards_of_a_machine_one_after_the_other() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, chart_place(NODE))
        for key, card in ((".", 0), (".", 1), (",", 0), (",", 7), (".", 0)):
            await pilot.press(key)
            await settle(console, pilot)
            assert admin.asked[-1][0] == f"card:{showcase_names.NODE}/{card}"
        assert "temperature · ━ card" in screen_text(console)
        # What can be done is about who holds the card.
        assert monitor_of(console).subjects() == (Subject(target=Target.REPLICA, key="qwen3-coder-30b-33f1"),)


@pytest.mark.asyncio
async def test_nothing_of_another_cluster_stays() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        assert monitor_of(console).points.of
        await visit(console, pilot, Place(view="models"))
        admin.refusal = "the other cluster does not answer"
        console.store.state = replace(console.store.state, epoch="another")
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        assert monitor_of(console).points.of == {}
        assert admin.refusal in screen_text(console)


@pytest.mark.asyncio
async def test_a_lost_connection_is_said_and_nothing_is_made_up() -> None:
    console, admin = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        count = monitor_of(console).points.count
        await disconnect(console, pilot)
        for second in range(5, 40, 5):
            at(console, float(second))
        await settle(console, pilot)
        assert "live" not in screen_lines(console)[2]
        assert (monitor_of(console).points.count, len(admin.asked)) == (count, 1)


@pytest.mark.asyncio
async def test_what_is_gone_is_said() -> None:
    console, _ = a_console()
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, chart_place(Of(Scope.CARD, "gpu04/77")))
        await settle(console, pilot)
        assert "card gpu04/77 is not there any more. esc goes back." in screen_text(console)


@pytest.mark.asyncio
async def test_in_ascii_nothing_else_is_drawn() -> None:
    console, _ = a_console(ascii_only=True)
    async with shown(console, size=(120, 40)) as pilot:
        await visit(console, pilot, MONITOR)
        await settle(console, pilot)
        assert all(line.isascii() for line in screen_lines(console)), screen_text(console)
        assert "* work" in screen_text(console)


def test_every_chart_shows_figures_that_there_are_and_of_one_unit() -> None:
    for scope, charts in CHARTS.items():
        assert set(figures_shown(scope)) <= set(figures_of(scope))
        assert len({chart.name for chart in charts}) == len(charts)
        for chart in charts:
            units = {each.unit for each in map(_figure, (name for name, _ in chart.lines))}
            assert units == {chart.unit}


def _figure(name: str) -> Series:
    return charted([name], "cluster", NOW - 300, 5.0).series[0]


def test_the_feed_has_every_figure_that_the_server_has_at_the_shortest_span() -> None:
    """One that the feed did not go on with would end where the console came."""
    state = showcase.live_store(showcase.rows()).state
    for of in (CLUSTER, MODEL, NODE, Of(Scope.CARD, f"{showcase_names.NODE}/0")):
        assert set(figures_shown(of.scope)) <= values_of(state, of).keys()
    node = values_of(state, NODE)
    cards = [values_of(state, Of(Scope.CARD, f"{showcase_names.NODE}/{index}")) for index in range(8)]
    assert node["power"] == pytest.approx(sum(card["power"] or 0.0 for card in cards))
    assert node["work"] == pytest.approx(sum(card["work"] or 0.0 for card in cards) / 8)
    assert node["temperature"] == max(card["temperature"] or 0.0 for card in cards)
    # A machine that is silent says nothing, whatever it said last.
    assert set(values_of(state, Of(Scope.NODE, "gpu12")).values()) == {None}


def test_points_go_on_with_gaps_where_nothing_was_heard() -> None:
    points = Points(start=1_000.0, step_s=5.0, of={"power": [1.0, 2.0]})
    assert not points.go_on(1_009.0, {"power": 3.0}, 300.0)
    assert points.go_on(1_011.0, {"power": 3.0}, 300.0)
    assert points.of["power"] == [1.0, 2.0, 3.0]
    assert points.go_on(1_026.0, {}, 300.0)
    known = [None if math.isnan(value) else value for value in points.of["power"]]
    assert known == [1.0, 2.0, 3.0, None, None, None]
    assert (points.start, points.end) == (1_000.0, 1_030.0)
    # Only so many are kept, and a clock that went back adds none.
    for step in range(100):
        points.go_on(1_031.0 + 5 * step, {"power": float(step)}, 300.0)
    assert (points.count, points.end) == (61, 1_530.0)
    assert not points.go_on(1_200.0, {"power": 1.0}, 300.0)


def test_spans_fall_into_round_parts() -> None:
    assert [_parts(span.seconds, 7) for span in SPANS] == [5, 6, 6, 6, 7]
    assert [_parts(span.seconds, 4) for span in SPANS] == [1 + 1, 4, 3, 4, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(1, 1), (30, 8), (80, 24)])
async def test_a_chart_draws_anything_at_any_size(size: tuple[int, int]) -> None:
    console, _ = a_console()
    lines = (
        (),
        (math.nan,) * 5,
        (1.0,),
        (0.0, 0.0, math.nan, 0.0),
        (1e12, -3.0, math.nan, math.nan, 7.0),
        tuple(float(step % 7) for step in range(3_000)),
    )
    async with shown(console, size=(120, 40)):
        chart = TimeChart(percent)
        await console.screen.mount(chart)
        chart.styles.width, chart.styles.height = size
        for first in lines:
            for second in lines:
                chart.show_lines(Drawn(lines=(first, second), start=NOW, step_s=5.0, span_s=300.0, empty="nothing"))
                assert chart.render() is not None


def test_charts_are_not_loaded_before_they_are_shown() -> None:
    """The first paint waits for nothing that it does not show."""
    code = "import sys, console.app, console.screens.monitor; sys.exit('plotext' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
