"""The real llama.cpp holds what was estimated: its cache to the byte it tells, its whole process never more."""

from pathlib import Path

import pytest

from tests.bench.engine_memory import measure, table


@pytest.mark.parametrize(("context", "slots"), [(512, 1), (2048, 1), (1024, 4), (4096, 4)])
def test_the_real_engine_takes_what_was_estimated(smollm2: Path, context: int, slots: int) -> None:
    found = measure(smollm2, context, slots)
    assert abs(found.cache_error) < 0.01, table([found])
    assert found.peak <= found.need.total_bytes, table([found])
    # What is estimated beyond that is the engine's own part, which does not grow with contexts and slots.
    assert found.need.total_bytes - found.peak <= found.need.overhead_bytes, table([found])


@pytest.mark.parametrize(
    "args",
    [
        ("--ubatch-size", "2048"),
        ("--cache-type-k", "f32", "--cache-type-v", "f32"),
        ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"),
    ],
    ids=["a larger batch", "a wider cache", "a narrower cache"],
)
def test_the_real_engine_takes_what_was_estimated_for_its_flags(smollm2: Path, args: tuple[str, ...]) -> None:
    found = measure(smollm2, 4096, 2, args=args)
    assert abs(found.cache_error) < 0.01, table([found])
    assert found.peak <= found.need.total_bytes, table([found])
