"""The part of the benchmark that starts a simulated fleet, with a small one."""

from pathlib import Path

import pytest

from tests.bench.fleet import Cost, FleetFigures, fleet_text, measure_fleet
from tests.bench.proc import Memory, family
from tests.bench.report import MIB


@pytest.mark.acceptance
def test_a_small_fleet_is_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    figures = measure_fleet(1.0, tmp_path, nodes=3, cards=2)
    assert (figures.nodes, figures.cards) == (3, 6)
    assert figures.replicas >= 2
    assert [cost.name for cost in figures.costs] == ["leader", "simulated fleet"]
    assert all(0 < cost.held.pss <= cost.held.rss for cost in figures.costs)
    assert family(str(tmp_path)) == {}


def test_a_row_has_a_process_with_its_share_and_its_memory() -> None:
    cost = Cost(name="leader", core_percent=12.34, held=Memory(rss=400 * MIB, pss=380 * MIB))
    lines = fleet_text(FleetFigures(nodes=2, cards=16, replicas=3, up_s=4.0, seconds=30.0, costs=(cost,))).splitlines()
    assert lines[0] == "fleet: 2 nodes with 16 cards, 3 replicas ready after 4 s, over 30 s"
    assert lines[-1].split() == ["leader", "12.3%", "400", "380"]
