"""What becomes of replicas, in words: none, one and several read differently."""

from collections.abc import Mapping, Sequence

from llmgw.core.fallbacks import chain_of
from llmgw.core.units import plural


def restarting(live: int) -> str:
    """Of a model's replicas when they are replaced."""
    if live == 0:
        return "no replica runs that could restart"
    return f"{'1 replica restarts' if live == 1 else f'{live:,} replicas restart one by one'}, new before old"


def ending(live: int) -> str:
    """Of a model's replicas when it is stopped."""
    if live == 0:
        return "no replica runs"
    return "1 replica drains and ends" if live == 1 else f"{live:,} replicas drain and end"


def staying(held: int) -> str:
    """Of a node's replicas when nothing new is placed there."""
    return f"{plural(held, 'replica')} {'stays' if held == 1 else 'stay'}"


def fallbacks_sentence(name: str, declared: Mapping[str, Sequence[str]]) -> str:
    """Who answers while the model of that name cannot, by every model's own list."""
    own = [other for other in declared.get(name, ()) if other in declared]
    if not own:
        return f"{name} falls back to no other model"
    after = [other for other in chain_of(name, declared) if other not in own]
    further = f"; after them to what those fall back to: {', then '.join(after)}" if after else ""
    return f"{name} falls back to {', then '.join(own)}{further}"


def left_alone(name: str, relying: Sequence[str]) -> str:
    """Of models that fell back to one that is gone; empty when there are none."""
    if not relying:
        return ""
    who = f"{plural(len(relying), 'model')} ({', '.join(relying[:8])})"
    return f"; {who} fell back to {name} and {'does' if len(relying) == 1 else 'do'} without it from now on"
