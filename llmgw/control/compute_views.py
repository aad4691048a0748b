"""Where engines compute, in sentences for operators: what falls short of its cards, and what replicas say. Pure."""

from collections.abc import Iterable

from llmgw.core.cluster import Replica
from llmgw.core.compute import compute_words, shortfalls
from llmgw.core.snapshot import Snapshot

MOST_SAID = 3
"""Different answers of one model's replicas that a sentence has room for."""


def compute_problems(snapshot: Snapshot) -> tuple[str, ...]:
    """`qwen on gpu1: the engine runs it on the CPU although it has card 0 (its log: …)`, one for each such part."""
    indexes = _indexes(snapshot)
    return tuple(
        f"{replica.model} on {node}: {sentence}"
        for replica in snapshot.replicas
        for node, sentence in shortfalls(replica, replica.shards, indexes.get)
    )


def compute_sentence(replicas: Iterable[Replica], snapshot: Snapshot) -> str:
    """What a model's replicas said of where they compute, what falls short first; empty where none said anything."""
    indexes = _indexes(snapshot)
    said: dict[str, None] = {}
    for replica in replicas:
        for node, sentence in shortfalls(replica, replica.shards, indexes.get):
            said[f"on {node} {sentence}"] = None
    if not said:
        told = [replica.compute for replica in replicas if replica.compute is not None]
        said = dict.fromkeys(f"it computes {compute_words(each)}" for each in told)
    more = f" and {len(said) - MOST_SAID} more" if len(said) > MOST_SAID else ""
    return "; ".join(list(said)[:MOST_SAID]) + more


def _indexes(snapshot: Snapshot) -> dict[str, int]:
    return {card.uuid: card.index for node in snapshot.nodes for card in node.cards}
