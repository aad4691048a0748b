"""Among how many cards an engine can divide a model: each computes as much of every layer as every other.

vLLM and SGLang end at their start where a figure does not divide, after weights were fetched for an hour. What counts
is the language model's: the encoder of pictures has heads of its own, which constrain nothing.
"""

from collections.abc import Iterator, Sequence

from llmgw.core.beside import value_of
from llmgw.core.catalog import ModelFacts

MOST_TP_NAMED = 16
"""Cards of one node, at most, in advice."""
VOCABULARY_STEP = 64
"""vLLM and SGLang round a vocabulary up to this many words before they divide it."""
EXPERT_COLUMNS = "columns of each expert"
"""Ends the name of a part that is an expert's."""
_ROUNDED_VOCABULARY = ("vllm", "sglang")
_EXPERT_PARALLEL = ("--enable-expert-parallel", "-ep")
_EXPERT_CARDS = ("--ep-size", "--expert-parallel-size")


def why_not_divided(facts: ModelFacts, engine: str, tp: int, args: Sequence[str] = ()) -> str:
    """Why the engine cannot divide the model among `tp` cards, and among how many it can; empty when it can."""
    what = next(_undivided(facts, engine, tp, args), "")
    if not what:
        return ""
    good = (n for n in range(1, MOST_TP_NAMED + 1) if not any(_undivided(facts, engine, n, args)))
    return f"{what} cannot be divided among {tp} cards; tp may be {', '.join(map(str, good))}"


def _undivided(facts: ModelFacts, engine: str, tp: int, args: Sequence[str]) -> Iterator[str]:
    """What of the model does not divide, in words with its figure."""
    if tp == 1:
        return
    if facts.attention_heads % tp:
        yield f"its {facts.attention_heads} attention heads"
    # More cards than KV heads hold copies of them, all of them as many.
    if facts.kv_heads and facts.kv_heads % tp and tp % facts.kv_heads:
        yield f"its {facts.kv_heads} KV heads, or copies of them,"
    if engine in _ROUNDED_VOCABULARY and -(-facts.vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP % tp:
        yield f"its vocabulary of {facts.vocabulary:,} words"
    whole = _whole_experts(args)
    for words, count in facts.even_parts.items():
        if count % tp and not (whole and words.endswith(EXPERT_COLUMNS)):
            yield f"its {words}"


def _whole_experts(args: Sequence[str]) -> bool:
    """Whether whole experts are dealt out to the cards, and none is divided: vLLM's switch, or SGLang's number."""
    return any(word in _EXPERT_PARALLEL for word in args) or value_of(args, _EXPERT_CARDS) not in ("", "1")
