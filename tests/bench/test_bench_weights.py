"""The part `weights`: a small run finds the same sums as others do, and memory that grows is called so."""

import shutil
from pathlib import Path

import pytest

from tests.bench import weights
from tests.bench.native import Missing
from tests.bench.report import MIB
from tests.bench.weights import Held, WeightsFigures, measure_weights, weights_text


def test_a_small_run_moves_everything_and_finds_the_same_sums(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    figures = measure_weights(1, 8 * MIB, 16 * MIB, tmp_path)
    assert figures.wrong() == []
    shown = weights_text(figures)
    for what in ("fetch one file", "fetch 4 files", "check 4 files", "hash one file", "hash 4 files"):
        assert what in shown
    assert "curl" in figures.seconds["fetch one file"]
    assert next(iter(figures.seconds["hash 4 files"])) == "llmgw"
    assert not [path for path in tmp_path.iterdir() if not path.name.endswith("-mirror")], "what it made is gone"


def test_without_curl_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.weights.shutil.which", lambda _name: None)
    with pytest.raises(Missing, match="curl is not installed"):
        measure_weights(1, MIB, 0, tmp_path)


def test_a_disk_without_room_for_a_large_set_is_a_sentence(tmp_path: Path) -> None:
    figures = WeightsFigures(file_bytes=MIB)
    weights._large(figures, 1 << 60, tmp_path)
    assert "skipped: a set of 1152922 TB" in weights_text(figures)


def test_ratios_are_of_the_same_round_and_growth_is_told() -> None:
    figures = WeightsFigures(file_bytes=100_000_000, large_bytes=10**10, large_s=30.0)
    for ours, theirs in ((1.0, 2.0), (2.0, 2.0), (4.0, 2.0)):
        figures.add("fetch one file", "llmgw", ours)
        figures.add("fetch one file", "curl", theirs)
    figures.held["node"] = Held(rss=[50 * MIB] * 30)
    figures.held["mirror"] = Held(rss=[(50 + i) * MIB for i in range(30)])
    shown = weights_text(figures)
    assert "1.00 (0.50–2.00)" in shown
    assert "node, 10 GB in 30 s: RSS at most 50 MiB, +0.0 MiB from the first third to the last: flat" in shown
    assert "mirror, 10 GB in 30 s: RSS at most 79 MiB, +20.0 MiB from the first third to the last: not flat" in shown
