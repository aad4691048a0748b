"""What becomes of replicas, in words: none, one and several read differently."""

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
