"""Parts of the benchmark of prefixes: prompts that begin alike, and a replay that counts what engines remembered."""

import contextlib
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.bench.gateways import Gateway
from tests.bench.prefix import PrefixFigures, Replay, _engine, endless, lineup, prefix_text, replay
from tests.bench.talks import BLOCK_BYTES, LEAST_TOKENS, SYSTEM_BLOCKS, TALKS_AT_ONCE, TURNS, Prompt, made, prompts


def test_prompts_of_a_trace_have_in_common_what_its_blocks_have(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": ids} for ids in ([0, 1], [0, 2], [5])]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second, third = prompts(trace, 10)
    assert first.text[:BLOCK_BYTES] == second.text[:BLOCK_BYTES] != third.text[:BLOCK_BYTES]
    assert first.text[BLOCK_BYTES:] != second.text[BLOCK_BYTES:]
    assert (len(first.text), first.tokens) == (2 * BLOCK_BYTES, LEAST_TOKENS)
    assert len(prompts(trace, 2)) == 2


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("TIMESTAMP,ContextTokens\n")
    with pytest.raises(ValueError, match="Expecting value"):
        prompts(trace, 1)


def test_made_conversations_grow_turn_by_turn() -> None:
    texts = [prompt.text for prompt in islice(made(), TALKS_AT_ONCE * TURNS)]
    assert len({text[: SYSTEM_BLOCKS * BLOCK_BYTES] for text in texts}) == 1
    begun = Counter(sum(later.startswith(text) for later in texts) for text in texts)
    assert begun == dict.fromkeys(range(1, TURNS + 1), TALKS_AT_ONCE)
    assert 0.5 < endless([Prompt(text=text, tokens=1) for text in texts]) < 1.0


def test_a_replay_counts_what_the_engine_says_it_remembered() -> None:
    asked = [Prompt(text=f"{n % 2} " * 1024, tokens=1) for n in range(8)]
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_engine())
        one = replay("direct", Gateway(name="direct", port=port), [port], asked[:2])
        again = replay("direct", Gateway(name="direct", port=port), [port], asked[2:])
    assert (one.requests, one.wrong, one.cached_tokens, one.busiest) == (2, (), 0, 1.0)
    assert (again.requests, again.wrong) == (6, ())
    assert again.hit_rate > 0.9


def test_ours_and_the_other_are_told_apart_and_what_came_wrong_is_told() -> None:
    assert list(lineup(["nginx"], [1])) == []
    assert len(lineup(["router", "vllm-router"], [1, 2])) == 5
    seen = Replay(
        gateway="ours",
        requests=3,
        prompt_tokens=200,
        cached_tokens=150,
        first_ms=(1.0, 2.0),
        seconds=1.0,
        busiest=1.0,
        wrong=("500",),
    )
    figures = PrefixFigures(trace="t", most=0.8, rounds=[seen], skipped={"other": "not here"})
    assert figures.wrong() == ["ours: 500"]
    shown = prefix_text(figures)
    assert "75.0 (75.0–75.0) %" in shown
    assert "skipped: other: not here" in shown
