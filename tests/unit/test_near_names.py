"""A slip of the hand is answered with the name that was meant, whatever there is a name of."""

import pytest

from llmgw.core.near import MOST_LOOKED_AT, did_you_mean, near


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("smolm2", ["qwen", "smollm2"], ("smollm2",)),
        ("QWEN", ["qwen", "Qwen", "llama"], ("qwen", "Qwen")),
        ("gpu-1", ["gpu1", "gpu2", "cpu1", "gpu3"], ("gpu1", "gpu3", "gpu2")),
        ("ß", ["SS"], ("SS",)),
        ("x", ["qwen"], ()),
        ("", ["qwen"], ()),
        ("qwen", [], ()),
    ],
)
def test_what_is_alike_is_found(name: str, known: list[str], found: tuple[str, ...]) -> None:
    assert near(name, known) == found


def test_the_names_are_quoted_and_joined_as_one_says_them() -> None:
    assert did_you_mean("qwe", ["qwen"]) == "; did you mean 'qwen'?"
    assert did_you_mean("qwen1", ["qwen2", "qwen3"]) == "; did you mean 'qwen3' or 'qwen2'?"
    assert did_you_mean("qwen1", ["zephyr"]) == ""


def test_a_huge_catalogue_is_not_looked_through() -> None:
    names = (f"m{number}" for number in range(10**9))
    near("model", names)
    assert next(names) == f"m{MOST_LOOKED_AT}"
