"""The simulated model's language: the same seed, model and prompt always give the same words and vectors.

Tokens are counted by one rule everywhere: a run of letters and digits is a token, and so is every other visible
character. A chat message costs `MESSAGE_TOKENS` more for its role and framing. An answer's token is one word with the
space before it.
"""

import hashlib
import math
import random
import re
from collections.abc import Iterator

MESSAGE_TOKENS = 4
"""Tokens a chat message costs beside its text."""

EMBEDDING_DIMENSIONS = 384
"""Length of a vector when the request names none."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+")
_LCG_FACTOR = 6364136223846793005
_LCG_STEP = 1442695040888963407
_MASK = (1 << 64) - 1

_VOCABULARY = (
    "the a one this each every light signal engine memory card shard token stream answer question number river "
    "mountain city window paper circuit garden winter summer morning evening small large quick steady bright quiet "
    "moves holds carries opens turns keeps finds gives reads writes over under beside through before after with "
    "without and or but while because slowly often again always near far home north"
)

WORDS = tuple(_VOCABULARY.split())
"""What answers are made of; plain ASCII, so a word needs no escaping in JSON."""


def count_tokens(text: str) -> int:
    """Tokens of `text` by this module's rule."""
    return sum(1 for _ in _TOKEN.finditer(text))


def text_seed(seed: int, model: str, prompt: str) -> int:
    """64 bits that decide an answer."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{seed}\0{model}\0".encode())
    digest.update(prompt.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big")


def words(state: int) -> Iterator[str]:
    """Endless tokens from a seed: the first word bare, the others with the space before them."""
    space = ""
    while True:
        state = (state * _LCG_FACTOR + _LCG_STEP) & _MASK
        yield space + WORDS[(state >> 33) % len(WORDS)]
        space = " "


def pieces(text: str) -> list[str]:
    """`text` cut into tokens that join to it again."""
    return _PIECE.findall(text)


def embedding(seed: int, model: str, text: str, dimensions: int = EMBEDDING_DIMENSIONS) -> list[float]:
    """A unit vector that depends on nothing but the arguments."""
    source = random.Random(text_seed(seed, model, text))
    vector = [source.gauss(0.0, 1.0) for _ in range(dimensions)]
    norm = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / norm for x in vector]
