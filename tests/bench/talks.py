"""Prompts as conversations bring them: of a recorded trace where there is one, else made here.

A trace is a file of JSON lines as the Mooncake project publishes them: `hash_ids` are the 512-token blocks of a prompt,
and equal ids at the beginning of two prompts are what they have in common. Each id is written out as the same text
each time, shorter than 512 tokens so that a run takes minutes and not hours.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llmgw.sim.text import WORDS

BLOCK_BYTES = 256
"""What a block of 512 tokens is written out as."""
MAX_BLOCKS = 128
TOKENS_BY = 20
"""Answers are this many times shorter than the trace's."""
MOST_TOKENS, LEAST_TOKENS = 32, 4

TALKS_AT_ONCE = 48
"""Made conversations that go on side by side."""
TURNS = 6
SYSTEM_BLOCKS, QUESTION_BLOCKS, TURN_BLOCKS = 4, 8, 3
"""Of a made conversation: what all begin with, its first question, and what each turn adds."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One request."""

    text: str
    tokens: int
    """Length of the answer."""


def prompts(trace: Path | None, count: int) -> list[Prompt]:
    """So many prompts of the trace, in its order, or made ones; raises OSError and ValueError for what is no trace."""
    source = made() if trace is None else recorded(trace)
    return list(islice(source, count))


def recorded(trace: Path) -> Iterator[Prompt]:
    """The trace's prompts."""
    with trace.open() as lines:
        for line in lines:
            row = json.loads(line)
            yield Prompt(text=written(row["hash_ids"][:MAX_BLOCKS]), tokens=answer_tokens(int(row["output_length"])))


def answer_tokens(recorded: int) -> int:
    """How long an answer is made of which the trace says so many tokens."""
    return max(LEAST_TOKENS, min(MOST_TOKENS, recorded // TOKENS_BY))


def made() -> Iterator[Prompt]:
    """Conversations without end, TALKS_AT_ONCE at a time and in another order each turn, which all begin alike."""
    talk, source = 0, random.Random(0)
    while True:
        at_once = list(range(talk, talk + TALKS_AT_ONCE))
        for turn in range(TURNS):
            source.shuffle(at_once)
            for number in at_once:
                own = QUESTION_BLOCKS + turn * TURN_BLOCKS
                ids = [*range(SYSTEM_BLOCKS), *(1000 * (number + 1) + block for block in range(own))]
                yield Prompt(text=written(ids), tokens=MOST_TOKENS // 2)
        talk += TALKS_AT_ONCE


def written(ids: list[int]) -> str:
    """The blocks as text."""
    return "".join(map(_block, ids))


def _block(number: int) -> str:
    source = random.Random(number)
    text = f"{number} "
    while len(text) < BLOCK_BYTES:
        text += source.choice(WORDS) + " "
    return text[:BLOCK_BYTES]
