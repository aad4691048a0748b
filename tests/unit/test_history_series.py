"""What is recorded of a real inventory, and how it is answered: names, spans, steps, gaps, and what cannot be said."""

import pytest
import trio
import trio.testing

from llmgw.api.series import CLUSTER, MAX_POINTS, Of, Scope, SeriesAnswer, figures_of, parse_of
from llmgw.control.history.book import ROW_BYTES
from llmgw.control.history.rings import STEPS_KEPT
from llmgw.core.cluster import SILENT_AFTER_S
from llmgw.core.errors import InvalidInput, LlmgwError, NotFound
from llmgw.core.figures import EngineLoad, ToldLoad
from tests.support.history import START, Rig

QWEN, PHI = Of(Scope.MODEL, "qwen"), Of(Scope.MODEL, "phi")
N1, N2 = Of(Scope.NODE, "n1"), Of(Scope.NODE, "n2")
FIRST_CARD, SECOND_CARD = Of(Scope.CARD, "GPU-n1-0"), Of(Scope.CARD, "n1/1")


def last(answer: SeriesAnswer) -> dict[tuple[str, str], float | None]:
    """The newest point of each series."""
    return {(each.of, each.figure): each.points[-1] for each in answer.series}


async def ask(rig: Rig, figures: str, *of: Of, span: float = 60.0, step: float | None = None) -> SeriesAnswer:
    return await rig.series.answer(figures.split(), of or (CLUSTER,), rig.now - span, None, step)


@pytest.mark.trio
async def test_cards_are_shown_for_themselves_and_together() -> None:
    rig = Rig()
    rig.ask(3.0, tokens=700.0, first_ms=120.0)
    await rig.samples(3)
    figures = "work busy memory temperature power"
    cards = last(await ask(rig, figures, FIRST_CARD, SECOND_CARD))
    assert [cards["card:GPU-n1-0", name] for name in figures.split()] == [50.0, 80.0, 50.0, 61.0, 350.0]
    assert [cards["card:n1/1", name] for name in figures.split()] == [10.0, 0.0, 0.0, 35.0, 70.0]
    # A node and the cluster: means of percents, the hottest, the sum of power.
    both = [30.0, 40.0, 25.0, 61.0, 420.0]
    found = last(await ask(rig, figures, N1, CLUSTER))
    assert [found["node:n1", name] for name in figures.split()] == both
    assert [found["cluster", name] for name in figures.split()] == both
    # A model has those it holds.
    assert last(await ask(rig, figures, QWEN)) == {
        ("model:qwen", name): cards["card:GPU-n1-0", name] for name in figures.split()
    }
    counted = last(await ask(rig, "cards_working cards_idle cards_free"))
    assert list(counted.values()) == [1.0, 0.0, 1.0]


@pytest.mark.trio
async def test_a_node_that_measures_oftener_has_no_more_points_and_no_other_ones() -> None:
    rig = Rig()
    for step in range(6):
        for part in range(4):
            rig.now += 1.0
            rig.sense(power_w=100.0 + 50 * part)
        rig.now -= 4.0
        await rig.samples(1, power_w=300.0 + 10 * step)
    (power,) = (await ask(rig, "power", FIRST_CARD, span=30.0)).series
    assert power.points[-6:] == tuple(300.0 + 10 * step for step in range(6))


@pytest.mark.trio
async def test_traffic_machines_and_efficiency() -> None:
    rig = Rig()
    rig.ask(3.0, tokens=700.0, first_ms=120.0)
    await rig.samples(2)
    found = last(await ask(rig, "requests first_token_p95 open ready tokens_per_wh", QWEN, PHI))
    assert [found["model:qwen", name] for name in ("requests", "first_token_p95", "open", "ready")] == [3.0, 120, 4, 1]
    assert found["model:qwen", "tokens_per_wh"] == pytest.approx(700 * 3600 / 350)
    # One that nobody asks: no requests is a figure, no first token is none.
    assert [found["model:phi", name] for name in ("requests", "first_token_p95", "ready")] == [0.0, None, 0.0]
    assert found["model:phi", "tokens_per_wh"] is None
    machines = last(await ask(rig, "cpu load host_memory power", N1, N2))
    assert [machines["node:n1", name] for name in ("cpu", "load")] == [12.5, None]
    assert [machines["node:n2", name] for name in ("cpu", "load", "power")] == [50.0, pytest.approx(3.2), None]
    assert machines["node:n1", "host_memory"] == pytest.approx(25.0, abs=0.25)


@pytest.mark.trio
async def test_what_engines_say_of_their_queues() -> None:
    rig = Rig()
    await rig.samples(1)
    figures = "waiting kv ready"
    assert list(last(await ask(rig, figures, QWEN)).values()) == [None, None, 1.0]
    said = EngineLoad(running=8, waiting=3, kv_used=0.5)
    rig.inventory.loads.heard("n1", {"qwen-1": ToldLoad(load=said, age_s=0.0, failures=0)})
    await rig.samples(1)
    assert list(last(await ask(rig, figures, QWEN)).values()) == [3.0, 50.0, 1.0]
    assert list(last(await ask(rig, figures, PHI)).values()) == [None, None, 0.0]
    assert last(await ask(rig, "waiting")) == {("cluster", "waiting"): 3.0}


@pytest.mark.trio
async def test_what_is_not_reported_is_null_and_never_zero() -> None:
    rig = Rig()
    await rig.samples(2)
    await rig.samples(2, power_w=None, busy=None)
    answer = await ask(rig, "power busy work", FIRST_CARD, span=15)
    assert [each.points for each in answer.series] == [
        (350.0, 350.0, None, None),
        (80.0, 80.0, None, None),
        (50.0, 50.0, None, None),
    ]


@pytest.mark.trio
async def test_a_machine_that_fell_silent_has_no_figures(autojump_clock: trio.testing.MockClock) -> None:
    rig = Rig()
    await rig.samples(1)
    await trio.sleep(SILENT_AFTER_S)
    rig.now += 5
    await rig.recorder.sample()
    answer = await ask(rig, "power cpu", N1, span=5)
    assert [each.points for each in answer.series] == [(420.0, None), (12.5, None)]


@pytest.mark.trio
async def test_a_gap_in_recording_is_a_gap_and_the_answer_says_since_when_there_is_something() -> None:
    rig = Rig()
    await rig.samples(2)
    rig.now += 20
    await rig.samples(1)
    answer = await ask(rig, "power", span=30)
    assert (answer.start, answer.step_s) == (START + 5, 5.0)
    assert answer.series[0].points == (420.0, 420.0, None, None, None, None, 420.0)
    assert answer.since == START + 5
    assert answer.source == "own"


@pytest.mark.trio
async def test_an_hour_by_five_seconds_and_a_day_by_the_minute() -> None:
    rig = Rig()
    for minute in range(90):
        for _ in range(12):
            rig.now += 5.0
            rig.sense(power_w=10.0 * (minute % 50))
            await rig.recorder.sample()
    hour = await ask(rig, "power", FIRST_CARD, span=3600, step=5)
    assert len(hour.series[0].points) == 721
    assert None not in hour.series[0].points
    # 90 minutes ago there is nothing finer than a minute, whatever is asked for.
    day = await ask(rig, "power", FIRST_CARD, span=5400, step=5)
    assert day.step_s == 60.0
    known = [point for point in day.series[0].points if point is not None]
    assert len(known) == len(day.series[0].points) == 91
    # A minute's first sample is the last of the watts before it.
    assert known[:3] == [0.0, pytest.approx(110 / 12, abs=0.1), pytest.approx(230 / 12, abs=0.1)]
    # Points are means over a step, and a step is rounded up to what is kept.
    coarse = await ask(rig, "power", FIRST_CARD, span=5400, step=130)
    assert coarse.step_s == 180.0
    assert coarse.start == START - 120
    assert coarse.series[0].points[1] == pytest.approx(sum(known[1:4]) / 3, abs=0.1)


@pytest.mark.trio
async def test_a_longer_span_than_is_kept_says_so_and_shows_what_there_is() -> None:
    rig = Rig()
    await rig.samples(24)
    answer = await ask(rig, "power", span=7 * 86400)
    assert answer.note == "no metrics store is set (monitor.prometheus.url); showing the last 24 h"
    assert answer.start >= rig.now - 86400 - answer.step_s
    assert answer.series[0].points[-1] == 420.0


@pytest.mark.trio
async def test_after_a_start_what_there_is_is_shown_at_any_span() -> None:
    rig = Rig()
    await rig.samples(2)
    for span in (300.0, 3600.0, 6 * 3600.0, 86400.0):
        answer = await ask(rig, "power", span=span)
        assert answer.note == ""
        assert answer.series[0].points[-1] == 420.0


@pytest.mark.trio
async def test_names_may_be_aliases_and_keep_the_form_they_were_asked_in() -> None:
    rig = Rig()
    rig.ask(3.0)
    await rig.samples(1)
    assert last(await ask(rig, "requests", Of(Scope.MODEL, "alias"))) == {("model:alias", "requests"): 3.0}


@pytest.mark.trio
@pytest.mark.parametrize(
    ("figures", "of", "says"),
    [
        ("watts", (CLUSTER,), "'watts': there is no such figure; known are work, busy,"),
        ("cpu", (CLUSTER,), "'cpu': there is none of a cluster; known are work, busy,"),
        ("requests", (QWEN, N1), "'requests': there is none of a node; known are work,"),
        ("work", (Of(Scope.NODE, "n9"),), "there is no node 'n9'; known are n1, n2"),
        ("work", (Of(Scope.CARD, "n1/7"),), "there is no card 'n1/7'; known are n1/0, n1/1"),
        ("work", (Of(Scope.CARD, "GPU-x"),), "there is no card 'GPU-x'; write card:UUID or card:NODE/INDEX"),
        ("work", (Of(Scope.MODEL, "gpt"),), "there is no model 'gpt'"),
        ("", (CLUSTER,), "figure: name at least one"),
        ("work busy", tuple(Of(Scope.NODE, f"n{i}") for i in range(40)), "of: 2 figures of 40 are more than 64 series"),
    ],
)
async def test_wrong_names_are_answered_with_what_there_is(figures: str, of: tuple[Of, ...], says: str) -> None:
    rig = Rig()
    with pytest.raises((InvalidInput, NotFound)) as caught:
        await ask(rig, figures, *of)
    assert says in caught.value.message


@pytest.mark.trio
@pytest.mark.parametrize(
    ("start", "end", "step", "says"),
    [
        (START + 10, START, None, "from: is not before `to`"),
        (START - 500 * 86400, START, None, "more than 400 days"),
        (START - 86400, None, 1.0, None),
        (START - 40 * 86400, None, 60.0, f"step: 57600 points are more than {MAX_POINTS}"),
    ],
)
async def test_spans_are_bounded(start: float, end: float | None, step: float | None, says: str | None) -> None:
    rig = Rig()
    if says is None:
        answer = await rig.series.answer(["power"], [CLUSTER], start, end, step)
        assert answer.step_s == 60.0
        return
    with pytest.raises(InvalidInput) as caught:
        await rig.series.answer(["power"], [CLUSTER], start, end, step)
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["", "nodes", "node:", "model", "user:x", "cluster:x", ":x"])
def test_what_is_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cluster, model:NAME, node:NAME, card:UUID and card:NODE/INDEX"):
        parse_of(text)


def test_what_a_series_is_of_reads_as_it_is_written() -> None:
    for text in ("cluster", "model:org/qwen:7b", "node:gpu-1.lab", "card:gpu1/3"):
        assert str(parse_of(text)) == text
    assert figures_of(Scope.CARD)[:2] == ("work", "busy")


@pytest.mark.trio
async def test_figures_without_room_are_named() -> None:
    rig = Rig(memory_mb=0)
    rig.book.limit_bytes = 3 * ROW_BYTES * STEPS_KEPT
    await rig.samples(3)
    answer = await ask(rig, "power temperature", N1)
    assert "not kept, for all of this size there is no room" in answer.note
    assert "history.memory_mb" in answer.note


@pytest.mark.trio
async def test_with_no_memory_nothing_is_recorded_and_the_answer_says_why(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rig = Rig(memory_mb=0)
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.recorder.run)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    answer = await ask(rig, "power")
    assert (answer.since, set(answer.series[0].points)) == (None, {None})
    assert answer.note == "nothing is kept: history.memory_mb in server.yaml is 0"


@pytest.mark.trio
async def test_a_sample_is_taken_at_the_beginning_of_every_step(autojump_clock: trio.testing.MockClock) -> None:
    rig = Rig()
    began = trio.current_time()
    rig.recorder._wall = lambda: START + 2.0 + trio.current_time() - began
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.recorder.run)
        await trio.sleep(13.5)
        nursery.cancel_scope.cancel()
    assert rig.book.since == (START + 5) // 5
    assert rig.book.last == (START + 15) // 5


class Store:
    """A metrics store that answers a seven everywhere, or fails."""

    configured = True
    where = "http://metrics:9090"

    def __init__(self, error: LlmgwError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[float, float, float]] = []

    async def read(self, wanted):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        from llmgw.api.series import Series

        self.asked.append((wanted.start, wanted.end, wanted.step_s))
        if self.error is not None:
            raise self.error
        return (Series(of="cluster", figure="power", unit="W", points=(7.0,)),)


@pytest.mark.trio
async def test_the_store_is_asked_for_what_is_older_and_for_nothing_else() -> None:
    store = Store()
    rig = Rig(store=store)
    await rig.samples(30)
    rig.now += 3.0
    for span in (300.0, 3600.0):
        assert (await ask(rig, "power", span=span)).source == "own"
    assert store.asked == []
    # This server has two minutes of its own: a day has to come from elsewhere.
    for span in (86400.0, 7 * 86400.0):
        answer = await ask(rig, "power", span=span)
        assert (answer.source, answer.series[0].points) == ("metrics", (7.0,))
    assert len(store.asked) == 2


@pytest.mark.trio
async def test_a_short_span_of_long_ago_is_the_stores_to_tell() -> None:
    store = Store()
    rig = Rig(store=store)
    await rig.samples(30)
    three_days_ago = rig.now - 3 * 86400
    answer = await rig.series.answer(["power"], [CLUSTER], three_days_ago, three_days_ago + 1800, None)
    assert (answer.source, answer.series[0].points) == ("metrics", (7.0,))
    store.error = NotFound("it answers 404")
    answer = await rig.series.answer(["power"], [CLUSTER], rig.now - 399 * 86400, three_days_ago, None)
    assert set(answer.series[0].points) == {None}
    assert answer.note.endswith("it answers 404; showing nothing: this server keeps 24 h")
    answer = await Rig().series.answer(["power"], [CLUSTER], three_days_ago, three_days_ago + 1800, None)
    assert answer.note == "no metrics store is set (monitor.prometheus.url); showing nothing: this server keeps 24 h"


@pytest.mark.trio
async def test_a_point_spans_no_more_than_was_asked_for() -> None:
    rig = Rig()
    await rig.samples(30)
    answer = await ask(rig, "power", span=3600, step=7 * 86400.0)
    assert answer.step_s == 3600.0
    assert answer.start > rig.now - 2 * 3600
    assert answer.series[0].points[-1] == 420.0


@pytest.mark.trio
async def test_when_the_store_cannot_be_read_the_last_day_is_shown_and_it_is_said() -> None:
    store = Store(NotFound("it answers 404 and no result of a query; is it Prometheus?"))
    rig = Rig(store=store)
    await rig.samples(30)
    answer = await ask(rig, "power", span=7 * 86400.0)
    assert answer.note == (
        "the metrics store at http://metrics:9090 cannot be read: it answers 404 and no result of a query; "
        "is it Prometheus?; showing the last 24 h"
    )
    assert (answer.source, answer.series[0].points[-1]) == ("own", 420.0)
    assert (await ask(rig, "power", span=6 * 3600.0)).note.endswith("; showing what this server saw itself")
    assert answer.start >= rig.now - 86400 - answer.step_s
