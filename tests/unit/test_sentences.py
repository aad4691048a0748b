"""Sentences about replicas: none, one and several."""

import pytest

from llmgw.control.sentences import ending, restarting, staying


@pytest.mark.parametrize(
    ("number", "restart", "end", "stay"),
    [
        (0, "no replica runs that could restart", "no replica runs", "0 replicas stay"),
        (1, "1 replica restarts, new before old", "1 replica drains and ends", "1 replica stays"),
        (3, "3 replicas restart one by one, new before old", "3 replicas drain and end", "3 replicas stay"),
    ],
)
def test_each_number_has_its_words(number: int, restart: str, end: str, stay: str) -> None:
    assert (restarting(number), ending(number), staying(number)) == (restart, end, stay)
