"""The flood of connections that the benchmark makes, small."""

from pathlib import Path

import pytest

from tests.bench import flood
from tests.bench.flood import flood_text, measure_flood


def test_every_connection_of_a_flood_is_answered_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("IDLE", 40), ("PER_SECOND", 200), ("PROBES", 40)):
        monkeypatch.setattr(flood, name, value)
    figures = measure_flood(1, tmp_path)
    (round_,) = figures.rounds
    assert round_.opened > 0
    assert all(0 < p50 <= p99 for p50, p99 in (round_.calm_ms, round_.idle_ms, round_.flooded_ms))
    assert "40 idle connections and 200 new ones a second" in flood_text(figures)
    assert "1.00" in flood_text(figures)
