"""Asking nodes for samples: however many look, a node is asked at its pace, and only one that can answer."""

import pytest

from llmgw.control.inventory import Inventory
from llmgw.control.samples import ANSWER_S, ASK_EVERY_S, SampleService
from llmgw.core.cluster import SILENT_AFTER_S
from llmgw.core.errors import NotFound, Unavailable
from tests.support.builders import a_node

FRESH = "gpu1 was asked for a fresh sample"


class Rig:
    """A service, its clock, and what nodes were asked."""

    def __init__(self, *names: str, able: bool = True) -> None:
        self.now = 100.0
        self.asked: list[str] = []
        self.away = False
        self.inventory = Inventory(lambda: self.now, lambda: None)
        self.samples = SampleService(inventory=self.inventory, orders=self, clock=lambda: self.now)
        for name in names:
            self.inventory.connected(a_node(name), (), ())
            self.samples.connected(name, able=able)

    def take_sample(self, node: str) -> bool:
        """Note it."""
        if not self.away:
            self.asked.append(node)
        return not self.away

    def look(self, node: str = "gpu1", *, after_s: float = 0.0) -> str:
        """A screen asks; what it is told."""
        self.now += after_s
        self.inventory.heard(node)
        return self.samples.ask(node).message


def test_many_screens_ask_a_node_once_a_second() -> None:
    rig = Rig("gpu1", "gpu2")
    for _ in range(50):
        rig.look(after_s=0.1)
        rig.samples.told("gpu1")
    assert rig.asked == ["gpu1"] * 5
    assert rig.look() == "gpu1 was asked for a sample 0.9 s ago, and tells everyone who looks"
    assert rig.look("gpu2") == "gpu2 was asked for a fresh sample", "each node has its own pace"


def test_a_node_is_not_asked_again_before_it_answered_or_never_will() -> None:
    rig = Rig("gpu1")
    assert rig.look() == FRESH
    assert (
        rig.look(after_s=ANSWER_S - 1)
        == f"gpu1 was asked for a sample {ANSWER_S - 1:.1f} s ago, and tells everyone who looks"
    )
    rig.samples.told("gpu1")
    assert rig.look() == FRESH
    assert rig.look(after_s=ANSWER_S) == FRESH, "an answer that is lost is not waited for"
    assert rig.asked == ["gpu1"] * 3


def test_a_new_stream_is_asked_at_once_and_owes_no_answer_of_the_old_one() -> None:
    rig = Rig("gpu1")
    rig.look()
    rig.samples.connected("gpu1", able=True)
    assert rig.look() == FRESH
    rig.samples.lost("gpu1")
    assert "older than this server" in rig.look(), "without a stream nothing is known of its agent"


def test_an_older_agent_is_not_asked_and_that_is_said() -> None:
    rig = Rig("gpu1", able=False)
    assert rig.look() == "gpu1 is not asked: its agent is older than this server, and tells by itself"
    assert rig.asked == []


def test_a_node_that_is_not_there_or_says_nothing_is_an_error() -> None:
    rig = Rig("gpu1")
    with pytest.raises(NotFound, match="no node 'gpu2'; did you mean 'gpu1'"):
        rig.samples.ask("gpu2")
    rig.away = True
    with pytest.raises(Unavailable, match="its connection was just lost"):
        rig.look()
    rig.away = False
    assert rig.look() == FRESH, "an order that did not go out is not counted"
    rig.now += SILENT_AFTER_S + ASK_EVERY_S
    with pytest.raises(Unavailable, match="gpu1 cannot be asked for a sample: it said nothing for 16 s"):
        rig.samples.ask("gpu1")
    rig.inventory.disconnected("gpu1")
    with pytest.raises(Unavailable, match="gpu1 cannot be asked for a sample: it is not connected"):
        rig.samples.ask("gpu1")
