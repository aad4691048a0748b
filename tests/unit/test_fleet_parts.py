"""The simulated fleet's parts: the same fleet every time, sensors that follow load, logs that stay bounded."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.discovery.gpu_class import gpu_class
from llmgw.agents import nodes_told, readings
from llmgw.control.models import checked
from llmgw.core.errors import InvalidInput
from llmgw.core.identity import check_node_name
from llmgw.demo.files import DemoFiles
from llmgw.demo.fleet import UNPLACED, FleetSize, keep_size, models, resolve_size, size_from
from llmgw.sim.fleet.cards import A100, H100, L40S, MIX, RTX_4090, CardModel
from llmgw.sim.fleet.load import CardLoad
from llmgw.sim.fleet.logs import KEPT_LINES, LogBook
from llmgw.sim.fleet.main import read_tokens
from llmgw.sim.fleet.options import FleetOptions, check_size, parse_size
from llmgw.sim.fleet.roster import roster
from llmgw.sim.fleet.telling import card_message, engine_messages, sensors_message, wear_message
from llmgw.wire.llmgw.v1 import AgentMessage, Inventory, LogRequest


def options(nodes: int, cards: int = 8, *, steady: bool = False) -> FleetOptions:
    return FleetOptions(nodes=nodes, cards=cards, data=Path("/nowhere"), steady=steady)


@pytest.mark.parametrize("model", [H100, A100, L40S, RTX_4090], ids=lambda model: model.gpu_class)
def test_a_simulated_card_has_the_class_a_real_one_would_get_and_says_that_it_is_simulated(model: CardModel) -> None:
    assert "(simulated)" in model.name
    assert gpu_class(model.name.replace(" (simulated)", ""), model.memory_bytes) == model.gpu_class


@given(st.integers(1, 60), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_roster_is_the_same_every_time_and_its_names_are_nodes_names(nodes: int, cards: int) -> None:
    plans = roster(options(nodes, cards))
    assert plans == roster(options(nodes, cards))
    assert len({plan.name for plan in plans}) == nodes
    assert len({card.uuid for plan in plans for card in plan.cards}) == nodes * cards
    for plan in plans:
        check_node_name(plan.name)
        assert plan.cards[0].problem == ""
    assert sum(plan.slow for plan in plans) == (1 if nodes > 1 else 0)
    assert sum(plan.silent for plan in plans) == (1 if nodes >= 3 else 0)


def test_a_room_has_a_few_worn_cards_and_a_steady_fleet_none() -> None:
    worn = [c for plan in roster(options(50)) for c in plan.cards if c.problem]
    assert len(worn) == 3
    assert all("simulated" in card.problem for card in worn)
    plans = roster(options(50, steady=True))
    assert not any(card.problem for plan in plans for card in plan.cards)
    assert not any(plan.slow or plan.silent for plan in plans)


@given(
    model=st.sampled_from(MIX),
    samples=st.lists(st.tuples(st.floats(0, 80), st.integers(0, 64), st.integers(0, 90 * 10**9)), max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_no_history_gives_a_figure_that_cannot_be(model: CardModel, samples: list[tuple[float, int, int]]) -> None:
    load = CardLoad(model, random.Random(1))
    for streams, slots, held in samples:
        figures = load.sample(streams=streams, slots=slots, held_bytes=held)
        assert 0 <= figures.memory_used_bytes <= model.memory_bytes
        assert 0 <= figures.utilization_percent <= 100
        assert model.idle_w - 1 <= figures.power_w <= model.power_limit_w
        assert 20 <= figures.temperature_c <= 95
        if figures.sm_active_percent is not None:
            assert figures.sm_active_percent <= figures.utilization_percent + 1


def test_load_follows_the_answers_and_an_idle_card_has_no_news() -> None:
    load = CardLoad(H100, random.Random(1))
    idle = load.sample(streams=0, slots=0, held_bytes=0)
    assert all(load.sample(streams=0, slots=0, held_bytes=0) == idle for _ in range(20))
    held = [load.sample(streams=0, slots=16, held_bytes=60 * 10**9) for _ in range(20)][-1]
    one = [load.sample(streams=1, slots=16, held_bytes=60 * 10**9) for _ in range(20)][-1]
    full = [load.sample(streams=16, slots=16, held_bytes=60 * 10**9) for _ in range(20)][-1]
    assert idle.power_w < held.power_w < one.power_w < full.power_w
    assert idle.temperature_c < one.temperature_c < full.temperature_c
    assert held.utilization_percent == 0
    # Busy says that something ran, work how much of the card: one stream keeps a card busy and mostly idle.
    assert one.utilization_percent > 90
    assert one.sm_active_percent is not None
    assert full.sm_active_percent is not None
    assert one.sm_active_percent < 40 < 60 < full.sm_active_percent
    after = [load.sample(streams=0, slots=16, held_bytes=60 * 10**9) for _ in range(40)]
    assert after[-1] == held == after[-2]


def test_what_a_node_tells_is_taken_by_the_control_plane_as_it_was_meant() -> None:
    (plan,) = roster(options(1, 2))
    loads = [CardLoad(card.model, random.Random(1)) for card in plan.cards]
    figures = [load.sample(streams=2, slots=8, held_bytes=10**9) for load in loads]
    message = sensors_message(plan, figures, with_uuids=False, cpu_percent=3.0, fetched_bytes=0)
    inventory = Inventory(address="127.0.0.1", cards=[card_message(c) for c in plan.cards], engines=engine_messages())
    node = nodes_told.node_from_inventory(inventory, node=plan.name, peer_address="127.0.0.1")
    told, _ = readings.figures_from(message, [card.uuid for card in node.cards])
    for card, figure in zip(node.cards, figures, strict=True):
        taken = told.cards[card.uuid]
        assert taken.power_limit_w == 700
        assert taken.sm_active_percent == figure.sm_active_percent
        assert taken.memory_temperature_c == figure.memory_temperature_c
        assert taken.memory_used_bytes == figure.memory_used_bytes
        assert (taken.profile_source, taken.throttle_reasons) == ("gpm", figure.throttle_reasons)
        assert (taken.tensor_active_percent, taken.ecc_uncorrected) == (figure.tensor_active_percent, 0)
        assert (card.nvlink_peers, card.pcie_generation) == ((plan.cards[1 - card.index].uuid,), 5)


def test_a_simulated_card_wears_out_as_a_real_one_does() -> None:
    plans = roster(FleetOptions(nodes=3, cards=2, data=Path("unused")))
    worn = readings.wear_from(wear_message(plans[2]))
    assert [len(wear.problems()) > 0 for wear in worn.values()] == [False, True]
    assert {len(wear.problems()) for wear in readings.wear_from(wear_message(plans[0])).values()} == {0}


def test_logs_are_bounded_and_a_follower_hears_of_the_end() -> None:
    sent: list[AgentMessage] = []
    book = LogBook(sent.append)
    for number in range(KEPT_LINES + 50):
        book.write("r/0", f"line {number}")
    book.answer(LogRequest(request_id="a", shard_id="r/0", tail_lines=10_000, follow=True))
    book.write("r/0", "news")
    book.forget("r/0")
    book.write("r/0", "of another life")
    lines = [message.log_lines for message in sent]
    assert lines[0] is not None
    assert len(lines[0].lines) == KEPT_LINES
    assert [entry.end for entry in lines if entry is not None] == [False, False, True]
    book.answer(LogRequest(request_id="b", shard_id="nobody/0", tail_lines=1))
    assert sent[-1].log_lines is not None
    assert "nobody/0" in sent[-1].log_lines.error


@pytest.mark.parametrize("text", ["12", "x8", "12x", "0x8", "12x0", "9999x8", "1x65", "-1x2", "1x2x3", "twelvexeight"])
def test_a_size_that_is_none_is_refused_with_the_form_or_the_range(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"12x8|outside"):
        parse_size(text)


def test_a_size() -> None:
    assert parse_size("12x8") == (12, 8)
    assert parse_size("3X2") == (3, 2)
    check_size(1000, 8)


def test_tokens_are_read_as_they_were_printed(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("T1 host:9443\n\nllmgw agent join T2 host:9443\n")
    assert read_tokens(path) == (("T1", "host:9443"), ("T2", "host:9443"))
    path.write_text("T1 host:9443\nalone\n")
    with pytest.raises(InvalidInput, match=":2"):
        read_tokens(path)


@pytest.mark.parametrize("size", ["1x1", "3x2", "12x8", "50x8", "1000x8"])
def test_the_demos_models_are_servable_and_say_that_they_are_simulated(size: str) -> None:
    served = models(size_from(size))
    assert served[-1] is UNPLACED
    for model in served:
        checked(model)
        assert model.name.startswith("sim-")
        assert model.source.startswith("sim:")


def test_a_fleet_comes_back_and_never_with_fewer_nodes(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    assert resolve_size(files, None) is None
    keep_size(files, FleetSize(nodes=12, cards=8))
    assert resolve_size(files, None) == FleetSize(nodes=12, cards=8)
    assert resolve_size(files, FleetSize(nodes=3, cards=4)) == FleetSize(nodes=12, cards=4)
    assert resolve_size(files, FleetSize(nodes=20, cards=8)) == FleetSize(nodes=20, cards=8)
