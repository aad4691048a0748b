"""Parts of the benchmark that replays a trace: its times, and a replay that counts what came of each request."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.gateways import Gateway
from tests.bench.native import Missing
from tests.bench.replayed import ENGINE_FLAGS, Replayed, ReplayedFigures, _replayed, lineup, percentile, replayed_text
from tests.bench.run import QUICK, of_trace
from tests.bench.sim_engines import loads, sim_engine, taken
from tests.bench.talks import BLOCK_BYTES, LEAST_TOKENS, MOST_TOKENS
from tests.bench.traces import arrivals, at_rate

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,1396,2109"
)


def test_a_csv_of_azures_gives_times_and_lengths_and_prompts_with_nothing_in_common(tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    trace.write_text(AZURE)
    first, second = arrivals(trace, 10)
    assert (first.at_s, round(second.at_s, 6)) == (0.0, 4.314579)
    assert (len(first.prompt.text), first.prompt.tokens) == (BLOCK_BYTES, LEAST_TOKENS)
    assert (len(second.prompt.text), second.prompt.tokens) == (3 * BLOCK_BYTES, MOST_TOKENS)
    assert first.prompt.text[:20] != second.prompt.text[:20]


def test_requests_of_one_time_come_evenly_until_the_next(tmp_path: Path) -> None:
    trace = tmp_path / "mooncake.jsonl"
    rows = [{"timestamp": at, "output_length": 9, "hash_ids": [n]} for n, at in enumerate((0, 0, 0, 3000, 6000, 6000))]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [one.at_s for one in arrivals(trace, 10)] == [0.0, 1.0, 2.0, 3.0, 6.0, 6.5]
    assert len(arrivals(trace, 4)) == 4


def test_the_pattern_stays_when_it_is_drawn_together() -> None:
    found = arrivals(None, 50)
    faster = at_rate(found, 10.0)
    assert faster[-1].at_s == pytest.approx(5.0)
    gaps = [
        (b.at_s - a.at_s) / (d.at_s - c.at_s) for a, b, c, d in zip(found, found[1:], faster, faster[1:], strict=False)
    ]
    assert gaps == pytest.approx([gaps[0]] * len(gaps))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other.csv", "a,b\n1,2\n"),
        ("half.csv", AZURE.replace("1396", "many")),
        ("one.csv", "\n".join(AZURE.splitlines()[:2])),
        ("empty.jsonl", ""),
        ("strange.jsonl", "[1]\n"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Missing, match=name):
        of_trace(arrivals, replace(QUICK, trace=tmp_path / name), 10)


def test_a_replay_counts_what_was_answered_and_what_was_refused() -> None:
    load = at_rate(arrivals(None, 6), 20.0)
    with sim_engine(*ENGINE_FLAGS, slots=8) as port:
        answered = _replayed("direct", Gateway(name="direct", port=port), load, 0.7, 20.0)
        assert taken(port) == 6
        assert loads((port,), 8).loads["r-bench-0"].running == 0
    assert (answered.came, answered.refused, answered.wrong) == (6, 0, ())
    assert 0 < answered.first_ms[0] <= answered.first_ms[1]
    assert math.isnan(answered.let_in_ms)
    with sim_engine(*ENGINE_FLAGS, "--fault=error:503", slots=8) as port:
        refused = _replayed("direct", Gateway(name="direct", port=port), load, 0.7, 20.0)
    assert (refused.answered, refused.refused, refused.goodput) == (0, 6, 0.0)


def test_rows_are_by_load_and_router_and_what_nobody_tells_is_a_dash() -> None:
    assert list(lineup(["nginx"], [1])) == []
    assert len(lineup(["router", "vllm-router"], [1, 2])) == 4
    seen = Replayed(
        gateway="ours",
        share=0.7,
        came=9,
        answered=8,
        refused=1,
        first_ms=(10.0, 20.0),
        let_in_ms=15.0,
        goodput=0.7,
        wrong=("500",),
    )
    figures = ReplayedFigures(
        trace="t", peaks=[12.0], rounds=[seen, replace(seen, gateway="other", let_in_ms=math.nan)]
    )
    assert figures.wrong() == ["ours: 500", "other: 500"]
    lines = replayed_text(figures).splitlines()
    assert lines[2].split()[-1] == "(15–15)"
    assert lines[3].split()[-1] == "–"
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
