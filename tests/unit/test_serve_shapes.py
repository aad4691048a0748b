"""Serving over several nodes: what is asked for becomes a shape that adds up, or a sentence beside the field."""

import pytest

from llmgw.api.types import ServeRequest
from llmgw.cli.ctl import build_parser
from llmgw.cli.groups.models import _request
from llmgw.control.serve import describe, model_for
from llmgw.core.errors import InvalidInput
from llmgw.core.serving import shape_of

SOURCE = "hf:org/large@0123456789abcdef0123456789abcdef01234567"


def serve(**over: object) -> ServeRequest:
    return ServeRequest(**{"source": SOURCE, "gpu_class": "h100-80g", **over})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "shape", "words"),
    [
        ({"nodes": 2, "tp": 8}, (8, 2, 2), "16 cards: 8 on each of 2 nodes, in 2 stages of 8"),
        ({"nodes": 2, "tp": 16, "pp": 1}, (16, 1, 2), "16 cards: 8 on each of 2 nodes"),
        ({"nodes": 3}, (1, 3, 3), "3 cards: 1 on each of 3 nodes, in 3 stages of 1"),
        ({"pp": 4, "tp": 2}, (2, 4, 1), "8 cards, in 4 stages of 2"),
        ({"nodes": 2, "tp": 4, "pp": 4}, (4, 4, 2), "16 cards: 8 on each of 2 nodes, in 4 stages of 4"),
        ({"nodes": 1, "tp": 2}, (2, 1, 1), "2 cards"),
    ],
)
def test_stages_follow_the_nodes_unless_they_are_named(
    asked: dict[str, int], shape: tuple[int, int, int], words: str
) -> None:
    model = model_for(serve(**asked))
    (profile,) = model.profiles
    assert (profile.tp, profile.pp, profile.nodes) == shape
    assert profile.engine == "vllm"
    assert shape_of(profile) == words
    assert (f"each on {words}" in describe(model)) is (profile.nodes > 1 or profile.pp > 1)


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"nodes": 2, "pp": 1, "tp": 3}, "nodes", "tp 3 × pp 1 are 3 cards, which 2 nodes cannot have as many of each"),
        ({"nodes": 2, "engine": "sglang"}, "nodes", "sglang runs on one node, and there with tp alone"),
        ({"pp": 2, "engine": "sglang"}, "pp", "pp above 1 is for vllm"),
        ({"nodes": 2, "source": f"{SOURCE}/q4.gguf"}, "nodes", "llamacpp runs on one node"),
        ({"nodes": 2, "source": "sim:"}, "nodes", "sim runs on one node"),
        ({"nodes": 2, "gpu_class": None}, "gpu_class", "vllm runs on cards: say which"),
        ({"nodes": 2, "gpu_class": None, "source": "file:/models/large"}, "gpu_class", "vllm runs on cards: say which"),
        ({"nodes": 0}, "nodes", "0 is outside 1 to 16"),
        ({"nodes": 17}, "nodes", "17 is outside 1 to 16"),
        ({"pp": 0}, "pp", "0 is outside 1 to 64"),
        ({"tp": 0}, "tp", "0 is outside 1 to 64"),
        ({"pp": 65}, "pp", "65 is outside 1 to 64"),
    ],
)
def test_what_does_not_add_up_is_refused_beside_its_field(asked: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        model_for(serve(**asked))
    assert refused.value.field == f"profiles[0].{field}"


def test_a_shape_belongs_into_the_profiles_that_are_given() -> None:
    profiles = model_for(serve()).profiles
    for request in (
        ServeRequest(source=SOURCE, profiles=profiles, nodes=2),
        ServeRequest(source=SOURCE, profiles=profiles, pp=2),
    ):
        with pytest.raises(InvalidInput, match="tp, pp, nodes, args and slots belong in the profiles"):
            model_for(request)


@pytest.mark.parametrize(
    "verb", [["model", "serve", SOURCE], ["explain", "large", "--source", SOURCE]], ids=["serve", "explain"]
)
def test_ctl_asks_for_nodes_and_stages(verb: list[str]) -> None:
    words = [*verb, "--gpu-class", "h100-80g", "--tp", "8", "--nodes", "2"]
    asked = _request(build_parser().parse_args(words), name="large", aliases=())
    assert (asked.tp, asked.pp, asked.nodes) == (8, None, 2)
    asked = _request(build_parser().parse_args([*words, "--pp", "1"]), name="large", aliases=())
    assert (asked.tp, asked.pp, asked.nodes) == (8, 1, 2)
