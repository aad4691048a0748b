"""Inputs kept as files, and what a seeded generator makes of them."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

CORPORA = Path(__file__).parents[1] / "corpora"
CHANGES = (1, 1, 1, 1, 2, 4)
"""Of one variant: mostly one, since what is broken twice is mostly refused for the first."""
LONGEST_COPY = 24


def corpus(kind: str) -> dict[str, bytes]:
    """The files of `tests/corpora/KIND`, by name without its suffix."""
    found = {path.stem: path.read_bytes() for path in sorted((CORPORA / kind).iterdir())}
    assert found, f"no corpus {kind}"
    return found


def mutations(data: bytes, words: Sequence[bytes], *, seed: str, count: int, seams: bytes = b"") -> Iterator[bytes]:
    """`count` variants of `data`, always the same for a seed: bits, bytes and stretches changed, and `words` put in.

    Every other variant only has words put in after one of the bytes `seams`, where they are likely to fit.
    """
    chance = random.Random(seed)
    places = [i + 1 for i, byte in enumerate(data) if byte in seams]
    for number in range(count):
        changed = bytearray(data)
        if places and number % 2:
            at = chance.choice(places)
            changed[at:at] = chance.choice(words)
        else:
            for _ in range(chance.choice(CHANGES)):
                _change(changed, words, chance)
        yield bytes(changed)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """`data` in reads of random sizes, most of them small."""
    parts, at = [], 0
    while at < len(data):
        size = chance.choice((1, 1, 2, 3, 7, 20, 64, 300, 4096))
        parts.append(data[at : at + size])
        at += size
    return parts


def _change(data: bytearray, words: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    stretch = slice(at, at + chance.randint(1, LONGEST_COPY))
    match chance.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.randrange(256)
        case 2:
            del data[stretch]
        case 3:
            data[at:at] = data[stretch]
        case 4:
            data[at:at] = chance.choice(words)
        case 5:
            data[stretch] = chance.choice(words)
        case _:
            del data[at:]
