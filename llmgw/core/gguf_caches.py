"""What a GGUF model's layers keep of a request, by its header and, where that is silent, by llama.cpp's own rules.

The rules are those of `llama-model.cpp` and `llama-hparams.cpp`: which layers look back a window only, which are
recurrent and keep a state of one size, and which keep nothing (those that predict further tokens, those that read the
cache of a layer before them).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

MAX_LAYERS = 4096
"""More than any model has; a header's larger claim is cut to it."""
STATE_BYTES = 4
"""llama.cpp keeps recurrent states as float32."""
WINDOW_PERIODS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "cohere2": 4,
    "llama4": 4,
    "exaone4": 4,
    "olmo2": 4,
    "smallthinker": 4,
    "afmoe": 4,
}
"""Every n-th layer attends to everything, the others to a window."""
CHUNK_TOKENS = {"llama4": 8192}
"""Windows that no header names."""
_RECURRENT = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
_BESIDE = ("falcon-h1",)
"""Every layer has attention and a state."""


class Described(Protocol):
    """A header, as far as caches go by it."""

    @property
    def architecture(self) -> str:
        """`general.architecture`."""

    def integer(self, key: str) -> int:
        """`{architecture}.{key}`, 0 when absent."""

    def per_layer(self, key: str, layers: int) -> tuple[int, ...]:
        """`{architecture}.{key}` for each layer; empty when absent."""

    def marks(self, key: str, layers: int) -> tuple[bool, ...]:
        """`{architecture}.{key}` as a mark a layer; empty when it is no array."""


class Caches(NamedTuple):
    """Bytes over all layers, at 16 bits a figure."""

    per_token: int
    windowed_per_token: int
    """Part of it that belongs to layers with a window."""
    window: int
    """Tokens they look back; 0 where there are none."""
    state: int
    """Of a request, however long it is."""


def caches(header: Described, layers: int) -> Caches:
    """What `layers` layers keep; zeroes where the header does not say."""
    each = _per_layer(header, layers)
    recurrent = _recurrent(header, each)
    each = [
        0 if stateful and header.architecture not in _BESIDE else size
        for size, stateful in zip(each, recurrent, strict=True)
    ]
    keeping = layers - header.integer("nextn_predict_layers") - header.integer("attention.shared_kv_layers")
    each = [size if i < keeping else 0 for i, size in enumerate(each)]
    window, windowed = _windowed(header, layers)
    sliding = sum(size for size, looks_back in zip(each, windowed, strict=True) if looks_back) if window else 0
    state = STATE_BYTES * _state_figures(header) * sum(recurrent)
    return Caches(per_token=sum(each), windowed_per_token=sliding, window=window if sliding else 0, state=state)


def _per_layer(header: Described, layers: int) -> list[int]:
    """Bytes of one token in each layer, as if every layer with KV heads had attention."""
    heads = header.per_layer("attention.head_count", layers)
    if not heads or len(heads) < layers:
        return [0] * layers
    latent = header.integer("attention.kv_lora_rank")
    if latent and header.integer("attention.key_length_mla"):
        # Latent attention keeps one compressed row a layer, whatever the number of heads; a layer without is recurrent.
        row = 2 * (latent + header.integer("rope.dimension_count"))
        keeping = header.per_layer("attention.head_count_kv", layers) or (1,) * layers
        return [row if i < len(keeping) and keeping[i] else 0 for i in range(layers)]
    kv_heads = header.per_layer("attention.head_count_kv", layers) or heads
    kv_heads += (0,) * (layers - len(kv_heads))
    head_dim = header.integer("embedding_length") // max(1, max(heads))
    key = header.integer("attention.key_length") or head_dim
    value = header.integer("attention.value_length") or head_dim
    narrow = (header.integer("attention.key_length_swa") or key) + (
        header.integer("attention.value_length_swa") or value
    )
    _, windowed = _windowed(header, layers)
    return [2 * count * (narrow if back else key + value) for count, back in zip(kv_heads, windowed, strict=True)]


def _recurrent(header: Described, each: Sequence[int]) -> list[bool]:
    """Which layers keep a state."""
    layers = len(each)
    if header.architecture in (*_RECURRENT, *_BESIDE):
        return [True] * layers
    interval = header.integer("full_attention_interval")
    if interval > 1:
        return [(i + 1) % interval != 0 for i in range(layers)]
    if not _state_figures(header):
        return [False] * layers
    # Hybrids name the KV heads of each layer; one that has none and no wide feed-forward is recurrent.
    feeds = header.per_layer("feed_forward_length", layers)
    alone = len(set(feeds)) > 1 and 0 in feeds and 0 in each
    return [size == 0 and not (alone and i < len(feeds) and feeds[i]) for i, size in enumerate(each)]


def _windowed(header: Described, layers: int) -> tuple[int, Sequence[bool]]:
    """The window, and which layers have it."""
    window = header.integer("attention.sliding_window") or CHUNK_TOKENS.get(header.architecture, 0)
    marks = header.marks("attention.sliding_window_pattern", layers)
    if window and len(marks) == layers:
        return window, marks
    period = header.integer("attention.sliding_window_pattern") or WINDOW_PERIODS.get(header.architecture, 0)
    if not window or period < 1:
        return 0, [False] * layers
    return window, [(i + 1) % period != 0 for i in range(layers)]


def _state_figures(header: Described) -> int:
    """Figures a recurrent layer keeps: its state and its convolution's last inputs."""
    if taps := header.integer("shortconv.l_cache"):
        return (taps - 1) * header.integer("embedding_length")
    if width := header.integer("wkv.head_size"):
        return header.integer("embedding_length") * (width + header.integer("token_shift_count"))
    if width := header.integer("kda.head_dim"):
        inner = width * max(header.per_layer("attention.head_count", MAX_LAYERS), default=0)
        return inner * width + 3 * (max(1, header.integer("ssm.conv_kernel") or 4) - 1) * inner
    inner, states = header.integer("ssm.inner_size"), header.integer("ssm.state_size")
    taps, groups = header.integer("ssm.conv_kernel"), header.integer("ssm.group_count")
    return states * inner + max(0, taps - 1) * (inner + 2 * groups * states) if inner else 0
