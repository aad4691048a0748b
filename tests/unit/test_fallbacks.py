"""Chains of fallbacks: what may be declared, what is said of what may not, and who is asked in which order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.sentences import fallbacks_sentence, left_alone
from llmgw.core.catalog import check_model, model_from
from llmgw.core.errors import InvalidInput
from llmgw.core.fallbacks import MAX_FALLBACKS, chain_of, check_chain, check_list, relying_on
from tests.support.builders import a_model

NAMES = ("a", "b", "c", "d", "e", "f")
GRAPHS = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), unique=True, max_size=4).map(tuple), max_size=6
)


def test_the_models_own_list_comes_first_and_then_what_those_fall_back_to() -> None:
    declared = {"a": ("b", "c"), "b": ("d", "c"), "c": ("e",), "d": (), "e": ("a",)}
    assert chain_of("a", declared) == ("b", "c", "d", "e")
    assert chain_of("d", declared) == ()
    assert chain_of("nobody", declared) == ()


def test_a_name_that_is_gone_is_passed_over() -> None:
    assert chain_of("a", {"a": ("gone", "b"), "b": ("gone",)}) == ("b",)


@given(GRAPHS, st.sampled_from(NAMES))
def test_a_chain_ends_whatever_is_stored(declared: dict[str, tuple[str, ...]], name: str) -> None:
    chain = chain_of(name, declared)
    assert name not in chain
    assert len(set(chain)) == len(chain)
    assert set(chain) <= declared.keys()
    own = [other for other in dict.fromkeys(declared.get(name, ())) if other in declared and other != name]
    assert list(chain[: len(own)]) == own


def reaches(start: str, end: str, declared: dict[str, tuple[str, ...]]) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        if at == end:
            return True
        new = [other for other in declared.get(at, ()) if other not in seen]
        seen.update(new)
        waiting += new
    return False


def check_both(name: str, fallbacks: tuple[str, ...], declared: dict[str, tuple[str, ...]]) -> None:
    check_list(name, fallbacks)
    check_chain(name, fallbacks, declared, {})


@given(GRAPHS, st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), unique=True, max_size=4).map(tuple))
def test_what_is_accepted_makes_no_circle_and_what_is_refused_would(
    declared: dict[str, tuple[str, ...]], name: str, fallbacks: tuple[str, ...]
) -> None:
    bad = (
        name in fallbacks
        or any(other not in declared for other in fallbacks)
        or any(reaches(other, name, declared) for other in fallbacks)
    )
    if not bad:
        check_both(name, fallbacks, declared)
        return
    with pytest.raises(InvalidInput) as refused:
        check_both(name, fallbacks, declared)
    assert (refused.value.field or "").startswith("fallbacks")
    if "in a circle" in refused.value.message:
        way = refused.value.message.partition("circle: ")[2].partition(";")[0].split(" → ")
        assert way[0] == way[-1] == name
        after = declared | {name: fallbacks}
        assert all(later in after[earlier] for earlier, later in pairwise(way))


def test_a_circle_is_named_from_end_to_end_with_the_way_out() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_chain("a", ("x", "b"), {"a": (), "b": ("c",), "c": ("a",), "x": ()}, {})
    assert "a → b → c → a" in refused.value.message
    assert "take b out here, or a out of the list of c" in refused.value.message
    assert refused.value.field == "fallbacks[1]"


def test_names_that_cannot_be_are_named() -> None:
    with pytest.raises(InvalidInput, match="there is no model 'gtp' to fall back to; models: gpt"):
        check_chain("a", ("gtp",), {"a": (), "gpt": ()}, {})
    with pytest.raises(InvalidInput, match="'g' is an alias: write the model's own name, gpt"):
        check_chain("a", ("g",), {"a": (), "gpt": ()}, {"g": "gpt"})
    with pytest.raises(InvalidInput, match="a cannot answer for itself"):
        check_list("a", ("b", "a"))
    with pytest.raises(InvalidInput, match="'b' is listed twice"):
        check_list("a", ("b", "b"))
    with pytest.raises(InvalidInput, match="more than 8"):
        check_list("a", tuple(f"m{i}" for i in range(MAX_FALLBACKS + 1)))


def test_an_entry_says_so_itself() -> None:
    model = model_from({"name": "a", "source": "sim:", "fallbacks": ["b"]})
    assert model.fallbacks == ("b",)
    with pytest.raises(InvalidInput, match="is not a name"):
        check_model(a_model("a", fallbacks=("../x",)))
    with pytest.raises(InvalidInput, match="cannot answer for itself"):
        check_model(a_model("a", fallbacks=("a",)))


def test_sentences() -> None:
    declared = {"a": ("b", "c", "gone"), "b": ("d",), "c": (), "d": ()}
    assert fallbacks_sentence("a", declared) == ("a falls back to b, then c; after them to what those fall back to: d")
    assert fallbacks_sentence("d", declared) == "d falls back to no other model"
    assert relying_on("b", declared) == ("a",)
    assert left_alone("b", ("a",)) == "; 1 model (a) fell back to b and does without it from now on"
    assert left_alone("b", ()) == ""
