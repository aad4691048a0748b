"""The parts of the overload bench that need no process: shares, and the table."""

import dataclasses

from tests.bench.overload import Overload, OverloadFigures, overload_text

ROUND = Overload(
    title="admission",
    peak_per_s=20.0,
    flood_per_s=19.0,
    alone_ms=50.0,
    flooded_ms=60.0,
    refused=3,
    waited_in_vain=4,
)


def test_figures_are_shares_of_the_same_routers_own() -> None:
    assert (ROUND.goodput, ROUND.times) == (0.95, 1.2)


def test_a_row_sums_up_the_rounds_of_one_way() -> None:
    other = dataclasses.replace(ROUND, flood_per_s=10.0, wrong=("500: b'no'",))
    figures = OverloadFigures(rounds=[ROUND, other, dataclasses.replace(ROUND, title="nothing held back")])
    lines = overload_text(figures).splitlines()
    assert len(lines) == 4
    assert "72.5 (50.0–95.0)%" in lines[2]
    assert lines[2].split()[-2:] == ["6", "8"]
    assert figures.wrong() == ["admission: 500: b'no'"]
