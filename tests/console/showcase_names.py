"""Names and places in the cluster of the pictures."""

from llmgw.core.throttle import POWER_CAP, SW_THERMAL

CARDS = 8
MODEL = "qwen3-coder-30b"
REPLICA = "qwen3-coder-30b-7c21"
NODE = "gpu04"
BAD_MODEL = "glm-5.2-air"
HOSTILE_NODE = "rack[/]9"
HOSTILE_MODEL = "[@click=app.quit]m[/]"
CLASSES = {"gpu07": "a100-80g", "gpu08": "a100-80g", "gpu09": "l40s-48g", "gpu10": "l40s-48g", "gpu11": "l40s-48g"}
WORN = {"gpu09": (6,)}
FELL_OFF = "Xid 79: the card has fallen off the bus; reseat or replace it."
WEARING = {("gpu04", 1): ("A bad memory row waits to be replaced by a spare: reset the card or restart the node.",)}
"""Cards that work and wear out."""
LIMITS_W = {"h100-80g": 700.0, "a100-80g": 400.0, "l40s-48g": 350.0}
COUNTED = ("h100-80g",)
"""Classes whose drivers count what parts of the chip do."""
HELD_BACK = {("gpu03", 0): POWER_CAP, ("gpu07", 5): SW_THERMAL}
"""Cards that heat or power holds back."""
SPLIT = ("gpu08", 6, "a100-80g-mig-3g.40gb")
"""A card with one MIG instance, which stands in the place after it."""
BROKEN = {"qwen3-coder-30b-33f1": "open", "qwen2.5-7b-d805": "half-open"}
"""Replicas that routers keep requests from."""
BREAKER_OPEN = (
    "replica qwen3-coder-30b-33f1 of model qwen3-coder-30b: breaker open on 1 of 2 routers, last failure: status 503"
)
HELD: tuple[tuple[str, str, str, int, int, float], ...] = (
    # replica, model, node, first card, cards, work
    ("llama-3.3-70b-1f02", "llama-3.3-70b", "gpu01", 0, 4, 78.0),
    ("llama-3.3-70b-9b11", "llama-3.3-70b", "gpu01", 4, 4, 71.0),
    ("llama-3.3-70b-c4d0", "llama-3.3-70b", "gpu02", 0, 4, 64.0),
    ("llama-3.3-70b-e7a5", "llama-3.3-70b", "gpu02", 4, 4, 82.0),
    (REPLICA, MODEL, "gpu03", 0, 2, 91.0),
    ("qwen3-coder-30b-0d44", MODEL, "gpu03", 2, 2, 55.0),
    ("qwen3-coder-30b-a9e8", MODEL, "gpu03", 4, 2, 47.0),
    ("qwen3-coder-30b-33f1", MODEL, "gpu04", 0, 2, 38.0),
    ("old-llama-20aa", "old-llama", "gpu04", 2, 2, 0.0),
    ("old-llama-5e0c", "old-llama", "gpu04", 4, 2, 1.0),
    ("qwen2.5-7b-81b0", "qwen2.5-7b", "gpu09", 0, 1, 66.0),
    ("qwen2.5-7b-4c7d", "qwen2.5-7b", "gpu09", 1, 1, 59.0),
    ("qwen2.5-7b-f2e6", "qwen2.5-7b", "gpu09", 2, 1, 72.0),
    ("qwen2.5-7b-6a39", "qwen2.5-7b", "gpu10", 0, 1, 18.0),
    ("qwen2.5-7b-bb17", "qwen2.5-7b", "gpu10", 1, 1, 69.0),
    ("qwen2.5-7b-d805", "qwen2.5-7b", "gpu10", 2, 1, 44.0),
    ("embed-m3-07aa", "embed-m3", "gpu08", 7, 1, 12.0),
    ("mistral-large-c901", "mistral-large", "gpu07", 0, 8, 35.0),
)
"""Replicas that answer."""
COMING: tuple[tuple[str, str, str, int, int, str, float], ...] = (
    # replica, model, node, first card, cards, state, seconds in it
    ("glm-5.2-51c2", "glm-5.2", "gpu05", 0, 8, "fetching", 95.0),
    ("glm-5.2-88d1", "glm-5.2", "gpu06", 0, 8, "checking", 12.0),
    ("deepseek-r2-distill-2e90", "deepseek-r2-distill", "gpu08", 0, 4, "starting", 43.0),
    ("old-llama-77f3", "old-llama", "gpu08", 4, 2, "draining", 21.0),
    ("phi-5-mini-19ce", "phi-5-mini", "gpu11", 0, 1, "failed", 240.0),
)
"""Replicas that do not answer yet, or no more."""
