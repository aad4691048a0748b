"""When requests come, and how long they are: of a recorded trace where there is one, else made here.

Two kinds of trace are read: CSV as Azure publishes it (`TIMESTAMP,ContextTokens,GeneratedTokens`), whose prompts have
nothing in common, and JSON lines as Mooncake publishes them (`timestamp` in ms, `hash_ids`, `output_length`). Prompts
and answers are shortened as `talks` has it; the times are drawn together to the load that is wanted, in their pattern.
"""

import csv
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, groupby, islice, pairwise
from pathlib import Path

from tests.bench.talks import MAX_BLOCKS, Prompt, answer_tokens, made, recorded, written

BLOCK_TOKENS = 512
MICROSECOND_DIGITS = 6
"""Azure's times have a digit more."""
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request and when it comes, in seconds from the first."""

    at_s: float
    prompt: Prompt


def arrivals(trace: Path | None, most: int) -> list[Arrival]:
    """The first of the trace, or made ones; raises OSError, and ValueError for what is no trace of two or more."""
    if trace is None:
        source = _made()
    elif trace.suffix == ".csv":
        source = _azure(trace)
    else:
        source = _mooncake(trace)
    found = list(islice(source, most))
    if len(found) < 2 or found[-1].at_s <= found[0].at_s:
        raise ValueError(f"{trace or 'the made trace'} has fewer than two requests at different times")
    return found


def at_rate(found: Sequence[Arrival], per_s: float) -> list[Arrival]:
    """The same requests in the same pattern, so many a second on average."""
    began, span = found[0].at_s, found[-1].at_s - found[0].at_s
    factor = len(found) / per_s / span
    return [Arrival(at_s=(one.at_s - began) * factor, prompt=one.prompt) for one in found]


def _made() -> Iterator[Arrival]:
    """Conversations whose turns come at random."""
    source, at_s = random.Random(0), 0.0
    for prompt in made():
        yield Arrival(at_s=at_s, prompt=prompt)
        at_s += source.expovariate(1.0)


def _azure(trace: Path) -> Iterator[Arrival]:
    with trace.open(newline="") as lines:
        rows = csv.DictReader(lines)
        if missing := [name for name in AZURE if name not in (rows.fieldnames or ())]:
            raise ValueError(f"{trace} has no column {missing[0]}: a CSV trace has {', '.join(AZURE)}")
        began, own = None, count(1 << 32)
        for row in rows:
            seconds, _, fraction = row["TIMESTAMP"].partition(".")
            at = datetime.fromisoformat(f"{seconds}.{fraction[:MICROSECOND_DIGITS] or '0':0<6}")
            began = began or at
            blocks = min(MAX_BLOCKS, 1 + int(row["ContextTokens"]) // BLOCK_TOKENS)
            prompt = Prompt(text=written(list(islice(own, blocks))), tokens=answer_tokens(int(row["GeneratedTokens"])))
            yield Arrival(at_s=(at - began).total_seconds(), prompt=prompt)


def _mooncake(trace: Path) -> Iterator[Arrival]:
    with trace.open() as lines:
        times = [json.loads(line)["timestamp"] / 1000 for line in lines]
    for at_s, prompt in zip(_spread(times), recorded(trace), strict=False):
        yield Arrival(at_s=at_s, prompt=prompt)


def _spread(times: Iterable[float]) -> Iterator[float]:
    """Requests that were written down with one time come evenly until the next."""
    heaps = [(at, len(list(same))) for at, same in groupby(times)]
    for (at, size), (after, _) in pairwise([*heaps, (heaps[-1][0] + 1.0, 0)] if heaps else []):
        yield from (at + (after - at) * number / size for number in range(size))
