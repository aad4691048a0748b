"""What a request may take, before it runs: an estimate of its tokens, and the most it may cost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.prices import Prices
from llmgw.core.routing import RoutedModel
from llmgw.router.charge import LIKELY_OUTPUT_TOKENS, TEMPLATE_TOKENS, UNKNOWN_OUTPUT_TOKENS, cost_of, demand_of
from llmgw.router.ports import Refusal
from llmgw.router.requests import check_max_output, read_fields
from llmgw.router.routes import Route
from llmgw.router.scopes import Demand
from llmgw.router.token_usage import Usage

PRICES = Prices(input=2.0, output=10.0)
MODEL = RoutedModel(name="m", context_length=4096, max_output=1024, prices=PRICES)
UNBOUNDED = RoutedModel(name="m", prices=PRICES)
MESSAGES = [{"role": "user", "content": "x" * 400}]


def wanted(
    document: dict[str, object], model: RoutedModel = MODEL, route: Route = Route.CHAT, *, budgeted: bool = True
) -> tuple[Demand, bytes]:
    """The demand of a request and its body."""
    body = json.dumps({"model": "m"} | document).encode()
    return demand_of(read_fields(body, route), body, model, route, budgeted=budgeted), body


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_what_was_asked_for_is_what_it_may_write(name: str) -> None:
    demand, body = wanted({"messages": MESSAGES, name: 50, "n": 3})
    assert demand == Demand(len(body) // 4, 150, True, 3, (len(body) + TEMPLATE_TOKENS) * 2 + 150 * 10)


def test_who_names_no_number_is_charged_for_what_is_likely_and_may_cost_the_most() -> None:
    demand, body = wanted({"messages": MESSAGES})
    assert demand == Demand(
        len(body) // 4, LIKELY_OUTPUT_TOKENS, False, 1, (len(body) + TEMPLATE_TOKENS) * 2 + 1024 * 10
    )
    demand, body = wanted({"messages": MESSAGES}, UNBOUNDED)
    assert demand.worst_micros == (len(body) + TEMPLATE_TOKENS) * 2 + UNKNOWN_OUTPUT_TOKENS * 10


def test_an_input_is_no_longer_than_the_context() -> None:
    demand, _ = wanted({"messages": [{"role": "user", "content": "x" * 100_000}], "max_tokens": 1})
    assert (demand.input_tokens, demand.worst_micros) == (4096, 4096 * 2 + 10)


def test_a_picture_may_fill_the_context() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    demand, _ = wanted({"messages": [{"role": "user", "content": [part]}], "max_tokens": 1})
    assert demand.worst_micros == 4096 * 2 + 10


@pytest.mark.parametrize(
    ("prompt", "choices"), [("hi", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([], 1), (["a"], 1)]
)
def test_each_prompt_of_a_list_has_its_own_answer(prompt: object, choices: int) -> None:
    demand, _ = wanted({"prompt": prompt, "max_tokens": 7, "n": 2}, route=Route.COMPLETIONS)
    assert (demand.choices, demand.output_tokens) == (2 * choices, 14 * choices)


def test_embeddings_write_nothing() -> None:
    demand, body = wanted({"input": "hello"}, route=Route.EMBEDDINGS)
    assert demand == Demand(len(body) // 4, 0, True, 1, len(body) * 2)


def test_money_is_left_out_where_there_is_none() -> None:
    assert wanted({"messages": MESSAGES}, budgeted=False)[0].worst_micros == 0
    assert wanted({"messages": MESSAGES}, RoutedModel(name="m"))[0].worst_micros == 0


@given(st.floats(0, 100), st.one_of(st.none(), st.floats(0, 100)), st.floats(0, 100), st.integers(1, 300), st.data())
def test_nothing_costs_more_than_the_worst(
    read: float, cached: float | None, write: float, most: int, data: st.DataObject
) -> None:
    prices = Prices(input=read, cached_input=cached, output=write)
    model = RoutedModel(name="m", context_length=400, max_output=300, prices=prices)
    demand, body = wanted({"messages": MESSAGES[:1], "max_tokens": most}, model)
    prompt = data.draw(st.integers(0, min(len(body) + TEMPLATE_TOKENS, 400)))
    usage = Usage(prompt, data.draw(st.integers(0, prompt)), data.draw(st.integers(0, most)))
    assert cost_of(usage, model) <= demand.worst_micros


@pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS])
def test_what_an_engine_heeds_under_another_name_is_reserved_and_bounded(route: Route) -> None:
    """As llama.cpp does, which prefers its own names; `best_of` answers are written, though fewer are read."""
    asked: dict[str, object] = {"messages": MESSAGES, "prompt": "hi", "max_tokens": 1}
    demand, _ = wanted(asked | {"n_predict": 50}, route=route)
    assert (demand.output_tokens, demand.asked) == (50, True)
    assert wanted(asked | {"n_cmpl": 3}, route=route)[0].output_tokens == 3
    assert wanted(asked | {"n": 2, "best_of": 5, "n_predict": 4}, route=route)[0].output_tokens == 20
    assert wanted(asked | {"n_predict": None, "n_cmpl": None}, route=route)[0].output_tokens == 1
    fields = read_fields(json.dumps({"model": "m"} | asked | {"n_predict": 1025}).encode(), route)
    with pytest.raises(Refusal) as refused:
        check_max_output(fields, MODEL, route)
    assert refused.value.param == "n_predict"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ('"n_predict": -2', "n_predict"),
        ('"n_predict": "9"', "n_predict"),
        ('"n_predict": 1e999', "n_predict"),
        ('"n_cmpl": [1]', "n_cmpl"),
        ('"best_of": {}', "best_of"),
        ('"n_cmpl": 0', "n_cmpl"),
        ('"best_of": 129', "best_of"),
        ('"n_predict": 9, "n_predict": 1', "n_predict"),
        ('"n_cmpl": 9, "n\\u005fcmpl": 1', "n_cmpl"),
    ],
)
def test_another_name_has_the_bounds_of_the_first(more: str, param: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_fields(b'{"model": "m", "messages": [], %b}' % more.encode(), Route.CHAT)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_no_bound_under_llama_cpps_name_is_none() -> None:
    """It heeds that name alone, so a bound beside it is none either."""
    for more in ({}, {"max_tokens": 5}, {"max_completion_tokens": 5}):
        asked: dict[str, object] = {"messages": MESSAGES, "n_predict": -1}
        demand, body = wanted(asked | more)
        assert (demand.asked, demand.output_tokens) == (False, LIKELY_OUTPUT_TOKENS)
        assert demand.worst_micros == (len(body) + TEMPLATE_TOKENS) * 2 + 1024 * 10
        check_max_output(read_fields(body, Route.CHAT), MODEL, Route.CHAT)


@pytest.mark.parametrize("value", [-1, "all", [1], {}])
def test_other_names_mean_nothing_where_nothing_is_written(value: object) -> None:
    more = {"n_predict": value, "n_cmpl": value, "best_of": value}
    assert wanted({"input": "hi"} | more, route=Route.EMBEDDINGS)[0].output_tokens == 0
