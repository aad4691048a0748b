"""What a request to serve leaves open: the engine follows from the source, the stages from the nodes."""

from llmgw.core.catalog import Profile
from llmgw.core.units import plural


def engine_for(source: str, *, on_cards: bool, divided: bool = False) -> str:
    """What can load the source: safetensors on cards are vLLM's, and so is whatever is `divided` by its layers."""
    source = source.strip()
    if source.startswith("sim:"):
        return "sim"
    if divided and not _path(source).endswith(".gguf"):
        return "vllm"
    return "vllm" if on_cards and not names_gguf(source) else "llamacpp"


def names_gguf(source: str) -> bool:
    """Whether it may be a GGUF file: a directory of a `file:` source may hold one; the agent looks when it is there."""
    return _path(source).endswith(".gguf") or source.startswith("file:")


def ends_in_gguf(source: str) -> bool:
    """Whether it names a GGUF file, whatever its case and whatever an address has behind it."""
    return _path(source).endswith(".gguf")


def _path(source: str) -> str:
    return source.partition("#")[0].partition("?")[0].lower()


def profile_for(
    source: str,
    *,
    engine: str | None = None,
    gpu_class: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    nodes: int | None = None,
) -> Profile:
    """The profile that is meant. A replica over several nodes has a stage on each, unless its stages are named too."""
    spans = 1 if nodes is None else nodes
    stages = spans if pp is None else pp
    return Profile(
        name=gpu_class or "cpu",
        engine=engine or engine_for(source, on_cards=bool(gpu_class), divided=spans > 1 or stages > 1),
        gpu_class=gpu_class,
        tp=1 if tp is None else tp,
        pp=stages,
        nodes=spans,
    )


def shape_of(profile: Profile) -> str:
    """`16 cards: 8 on each of 2 nodes, in 2 stages`; its cards alone where it is one stage on one node."""
    cards = plural(profile.cards_per_node * profile.nodes, "card")
    each = f": {profile.cards_per_node} on each of {profile.nodes} nodes" if profile.nodes > 1 else ""
    stages = f", in {profile.pp} stages of {profile.tp}" if profile.pp > 1 else ""
    return f"{cards}{each}{stages}"
