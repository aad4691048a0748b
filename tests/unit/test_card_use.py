"""What cards do for those who hold them: one arithmetic for console, ctl and metrics, whatever it starts from."""

from llmgw.api.card_uses import uses_of_node, uses_of_row
from llmgw.api.node_types import CardInfo, NodeInfo
from llmgw.api.rows import CardRow, FiguresRow, NodeRow
from llmgw.control.resting import Resting
from llmgw.core.card_use import Use, best_first, by_model, efficiency, load_of, rests, work_of
from llmgw.core.figures import CardFigures


def test_work_is_multiprocessors_where_they_are_counted_and_power_elsewhere() -> None:
    assert work_of(0.0, 300.0, 700.0) == 0.0
    assert work_of(None, 350.0, 700.0) == 50.0
    assert work_of(None, 900.0, 700.0) == 100.0
    assert (load_of(0.0, 700.0), load_of(300.0, None), load_of(None, 700.0)) == (None, None, None)


def test_a_card_that_does_not_tell_is_not_idle() -> None:
    assert rests(0.0, 40.0)
    assert not rests(50.0, 0.0)
    assert rests(None, 2.9)
    assert not rests(None, None)


def test_a_models_line_is_of_all_its_replicas() -> None:
    first, second = Use(), Use()
    first.add(0, busy=90.0, work=60.0, sm=60.0, power_w=300.0, limit_w=700.0)
    first.add(1, busy=0.0, work=20.0, power_w=100.0, since=12.0)
    second.add(0, busy=30.0, work=40.0, power_w=320.0, limit_w=700.0)
    line = efficiency("chat", by_model([("chat", first), ("chat", second)])["chat"], 1440.0)
    assert (line.cards, line.busy, line.work, line.sm, line.draw_w) == (3, 40.0, 40.0, 60.0, 720.0)
    assert line.per_card == 480.0
    assert line.tokens_per_wh == 1440.0 * 3600 / 720.0
    assert (first.idle, first.idle_w, first.resting_since) == ((1,), 100.0, 12.0)


def test_a_model_without_figures_has_none_and_no_zero() -> None:
    use = Use()
    use.add(0)
    line = efficiency("m", use, 0.0)
    assert (line.busy, line.work, line.load, line.sm, line.draw_w, line.tokens_per_wh) == (None,) * 6


def test_the_best_per_card_comes_first() -> None:
    uses = {"a": Use(), "b": Use(), "c": Use()}
    for name, cards in (("a", 2), ("b", 1), ("c", 1)):
        for place in range(cards):
            uses[name].add(place)
    lines = best_first(efficiency(name, use, 100.0) for name, use in uses.items())
    assert [line.model for line in lines] == ["b", "c", "a"]


def test_rows_of_the_feed_and_a_nodes_document_say_the_same() -> None:
    row = NodeRow(
        name="n",
        state="connected",
        cards=tuple(
            CardRow(
                uuid=f"g{i}",
                index=i,
                name="H100",
                gpu_class="h100-80g",
                replica="r" if i else None,
                power_limit_w=700.0,
                work_from="sm" if i == 1 else "power",
            )
            for i in range(3)
        ),
    )
    figures = FiguresRow(
        heard=0.0,
        utilization_percent=(0.0, 80.0, 0.0),
        work_percent=(10.0, 55.0, 10.0),
        power_w=(70.0, 420.0, 70.0),
        resting_since=(5.0, None, 7.0),
    )
    node = NodeInfo(
        name="n",
        state="connected",
        cards=tuple(
            CardInfo(
                uuid=f"g{i}",
                index=i,
                name="H100",
                gpu_class="h100-80g",
                replica="r" if i else None,
                power_limit_w=700.0,
                power_w=(70.0, 420.0, 70.0)[i],
                utilization_percent=(0.0, 80.0, 0.0)[i],
                sm_active_percent=55.0 if i == 1 else None,
            )
            for i in range(3)
        ),
    )
    by_row, by_node = uses_of_row(row, figures)["r"], uses_of_node(node)["r"]
    assert efficiency("m", by_row, 9.0) == efficiency("m", by_node, 9.0)
    assert (by_row.idle, by_row.idle_w, by_row.resting_since) == ((2,), 70.0, 7.0)
    assert by_node.idle == (2,)


def test_cards_of_a_node_that_is_not_heard_are_nobodys_idle_ones() -> None:
    card = CardRow(uuid="g", index=0, name="H100", gpu_class="h", replica="r")
    row = NodeRow(name="n", state="silent", cards=(card,))
    use = uses_of_row(row, FiguresRow(heard=0.0, utilization_percent=(0.0,)))["r"]
    assert (use.cards, use.idle) == (1, ())
    assert uses_of_row(row, None)["r"].cards == 1


def test_a_card_rests_from_its_first_quiet_sample_until_one_that_is_not() -> None:
    resting = Resting()
    quiet, working = CardFigures(utilization_percent=0.0), CardFigures(utilization_percent=61.0)
    resting.hear({"g": quiet, "h": working, "m": CardFigures()}, 100.0)
    resting.hear({"g": quiet}, 105.0)
    assert (resting.since("g"), resting.since("h"), resting.since("m")) == (100.0, None, None)
    resting.hear({"g": working}, 110.0)
    assert resting.since("g") is None
    resting.hear({"g": quiet}, 115.0)
    assert resting.since("g") == 115.0
    resting.forget("g")
    assert resting.since("g") is None
