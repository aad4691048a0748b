"""The catalog's vocabulary: what an operator wants served. A model that left `check_model` is whole and consistent."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from llmgw.core.errors import InvalidInput
from llmgw.core.external import External, check_endpoints
from llmgw.core.fallbacks import check_list
from llmgw.core.prices import Prices
from llmgw.core.strict import refuse_unknown
from llmgw.core.units import plural

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
GPU_CLASS_PATTERN = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
"""What a node can call a class of cards."""
ENGINES = ("llamacpp", "sim", "vllm", "sglang", "freetoken", "trtllm", "comfyui", "strata")
"""Engines this version can start. One file each in `agent/engines/`."""
CARD_ENGINES = ("vllm", "sglang", "freetoken", "trtllm", "comfyui", "strata")
"""Those that run on cards alone."""
ONE_CARD_ENGINES = ("freetoken", "comfyui", "strata")
"""Those whose replica is on one card."""
ONE_SLOT_ENGINES = ("strata",)
"""Those that answer one request at a time."""
GGUF_ENGINES = ("llamacpp", "strata")
"""Those that load a GGUF file, which a source names."""
PICTURE_ENGINES = ("comfyui",)
"""Those that make pictures: no context, and no route of the client API that they answer."""
OFFERED_ENGINES = ("vllm", "sglang")
"""Those proposed for a repository of safetensors: nodes install them by themselves."""

MIN_CONTEXT = 256
MAX_CONTEXT = 16 * 1024 * 1024
MAX_SLOTS = 64
MAX_REPLICAS = 256
MAX_TP = 64
MAX_NODES = 16
"""Nodes that one replica may span."""
MULTI_NODE_ENGINES = ("vllm",)
"""Those that divide a model by its layers and over nodes, on a distributed runtime of their own."""
DEFAULT_CONTEXT = 4096
MAX_PRICE = 1e6
"""Currency per million tokens: one a token, thousands of times what anybody asks for."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas are kept."""

    min: int = 1
    """Replicas kept at all times."""
    max: int = 1
    """Replicas never exceeded, restarts one by one excepted."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run the model; profiles are tried from the highest priority down."""

    name: str
    engine: str
    gpu_class: str | None = None
    """Slug of the card it needs (`h100-80g`); none runs on CPU and memory alone."""
    tp: int = 1
    """Cards among which every layer is divided."""
    pp: int = 1
    """Stages of whole layers that follow one another, each on `tp` cards."""
    nodes: int = 1
    """Nodes that one replica spans, all with as many cards."""
    gpus_per_node: int | None = None
    """Cards of each of its nodes; none is an even part of `tp` × `pp`."""
    priority: int = 1
    args: tuple[str, ...] = ()
    """Further engine flags, checked by the engine's own rules."""
    env: dict[str, str] = {}
    min_memory_gb: float = 0.0
    """Node memory in GB (10**9 bytes) the replica needs at least, beside its cards if it has some."""
    slots: int = 4
    """Requests the engine works on at once."""

    @property
    def cards_per_node(self) -> int:
        """Cards that one replica takes of each of its nodes."""
        return self.gpus_per_node or max(1, self.tp * self.pp // self.nodes)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog entry as the operator wrote it."""

    name: str
    source: str = ""
    """`hf:org/repo@rev`, `https://…`, `pypi:PKG==VER/PATH`, `file:/…`, `sim:`; empty for a model that is `external`."""
    external: External | tuple[External, ...] = ()
    """Endpoints outside the cluster, one or a list, in place of source and profiles; always a tuple once made."""
    aliases: tuple[str, ...] = ()
    context_length: int | None = None
    """Tokens a request may span; none takes the model's trained context, DEFAULT_CONTEXT at most."""
    max_output: int | None = None
    """Longest answer in tokens; none follows the context."""
    scaling: Scaling = Scaling()
    profiles: tuple[Profile, ...] = ()
    prices: Prices | None = None
    """What its tokens cost; none costs nothing."""
    stopped: bool = False
    """Kept in the catalog, with no replica."""
    fallbacks: tuple[str, ...] = ()
    """Models, by name, that answer instead while this one cannot, in their order; what they fall back to follows."""

    def __post_init__(self) -> None:
        """A single endpoint is a list of one."""
        if isinstance(self.external, External):
            msgspec.structs.force_setattr(self, "external", (self.external,))

    @property
    def endpoints(self) -> tuple[External, ...]:
        """Where it is served outside the cluster; none for a model that runs here."""
        return self.external if isinstance(self.external, tuple) else (self.external,)

    @property
    def wanted_replicas(self) -> int:
        """Replicas the reconciler keeps up."""
        return 0 if self.stopped or self.external else self.scaling.min

    @property
    def pictures(self) -> bool:
        """Whether it makes pictures: a request in tokens means nothing to it."""
        return bool(self.profiles) and all(profile.engine in PICTURE_ENGINES for profile in self.profiles)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a client may use, the model's own first."""
        return (self.name, *self.aliases)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the weights say of themselves (GGUF header, `config.json`); zero or none is "not said"."""

    weights_bytes: int = 0
    """Sum of the files an engine loads."""
    trained_context: int = 0
    """Tokens the model was trained to span."""
    kv_bytes_per_token: int = 0
    """Key and value cache of one token over all layers, at 16 bits."""
    architecture: str = ""
    parameters: int = 0
    layers: int = 0
    attention_heads: int = 0
    kv_heads: int = 0
    """Heads whose keys and values are cached; one where all heads share a compressed row."""
    embedding_length: int = 0
    vocabulary: int = 0
    quantization: str = ""
    sliding_window: int = 0
    """Tokens the windowed layers look back; 0 where no layer is known to be windowed."""
    sliding_kv_bytes_per_token: int = 0
    """Part of `kv_bytes_per_token` that belongs to windowed layers."""
    state_bytes: int = 0
    """What recurrent layers keep of a request, however long it is."""
    experts: int = 0
    """Experts a layer chooses from; 0 for a dense model."""
    expert_bytes: tuple[int, ...] = ()
    """Bytes of each layer's experts, part of `weights_bytes`; empty where the files do not tell them apart."""
    even_parts: dict[str, int] = {}
    """What every card takes an even part of besides heads, by its name with the figure; empty where it is not said."""


def model_from(raw: Mapping[str, Any], *, where: str = "") -> Model:
    """A checked model from a parsed YAML or JSON mapping; raises InvalidInput naming the field."""
    try:
        model = msgspec.convert(raw, Model)
        refuse_unknown(raw, Model)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), field=where or None) from error
    check_model(model)
    return model


def check_model(model: Model) -> None:
    """Raise InvalidInput for the first rule the model breaks."""
    for i, name in enumerate(model.names):
        check_name(name, field="name" if i == 0 else f"aliases[{i - 1}]")
    if len(set(model.names)) != len(model.names):
        raise InvalidInput("a name is listed twice", field="aliases")
    for i, name in enumerate(model.fallbacks):
        check_name(name, field=f"fallbacks[{i}]")
    check_list(model.name, model.fallbacks)
    _check_range(model.scaling.min, 0, MAX_REPLICAS, "scaling.min")
    _check_range(model.scaling.max, max(1, model.scaling.min), MAX_REPLICAS, "scaling.max")
    if model.context_length is not None:
        _check_range(model.context_length, MIN_CONTEXT, MAX_CONTEXT, "context_length")
    if model.max_output is not None:
        _check_range(model.max_output, 1, model.context_length or MAX_CONTEXT, "max_output")
    if model.prices is not None:
        _check_prices(model.prices)
    _check_served(model)
    seen: set[str] = set()
    for i, profile in enumerate(model.profiles):
        _check_profile(profile, f"profiles[{i}]", seen)
    _check_pictures(model)


def _check_pictures(model: Model) -> None:
    """A model whose engine makes pictures has no context, and no profile that answers in tokens."""
    engines = {profile.engine for profile in model.profiles}
    if not engines.intersection(PICTURE_ENGINES):
        return
    engine = next(profile.engine for profile in model.profiles if profile.engine in PICTURE_ENGINES)
    if not model.pictures:
        raise InvalidInput(
            f"{engine} makes pictures and {', '.join(sorted(engines - {engine}))} answers in tokens: "
            "make two models of them",
            field="profiles",
        )
    for field in ("context_length", "max_output"):
        if getattr(model, field) is not None:
            raise InvalidInput(f"{engine} makes pictures, which have no context in tokens: leave it out", field=field)
    if model.fallbacks:
        raise InvalidInput(f"no request is relayed to {engine}, so there is none to fall back with", field="fallbacks")


def _check_served(model: Model) -> None:
    """A model runs here or is served elsewhere, and an entry says which."""
    if not model.endpoints:
        if not model.source:
            raise InvalidInput(
                "says neither where its weights come from (source: hf:ORG/REPO@REVISION) nor which endpoint outside "
                "the cluster serves it (external: {base_url: https://HOST/v1})",
                field="model",
            )
        return
    for field in ("source", "profiles"):
        if getattr(model, field):
            raise InvalidInput(
                f"{field} is for a model that runs here and external for one that does not: give one of them",
                field=field,
            )
    if model.scaling != Scaling():
        raise InvalidInput("an external model has no replicas to scale", field="scaling")
    check_endpoints(model.endpoints)


def check_name(name: str, *, field: str) -> None:
    """Refuse a name that could not stand in a URL path, a file name or a terminal."""
    if not NAME_PATTERN.fullmatch(name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidInput(
            f"{name[:140]!r} is not a name: 1 to 128 of letters, digits and ._:/- , starting with a letter or digit",
            field=field,
        )


def _check_profile(profile: Profile, where: str, seen: set[str]) -> None:
    check_name(profile.name, field=f"{where}.name")
    if profile.name in seen:
        raise InvalidInput(f"two profiles are called {profile.name!r}", field=f"{where}.name")
    seen.add(profile.name)
    if profile.engine not in ENGINES:
        raise InvalidInput(f"engine {profile.engine!r} is not one of {', '.join(ENGINES)}", field=f"{where}.engine")
    _check_range(profile.tp, 1, MAX_TP, f"{where}.tp")
    _check_range(profile.slots, 1, MAX_SLOTS, f"{where}.slots")
    if profile.gpu_class is not None and not GPU_CLASS_PATTERN.fullmatch(profile.gpu_class):
        raise InvalidInput(
            f"{profile.gpu_class[:140]!r} is no class of cards: write it as `llmgw ctl node show NODE` does, "
            "h100-80g for instance",
            field=f"{where}.gpu_class",
        )
    if profile.engine in CARD_ENGINES and profile.gpu_class is None:
        raise InvalidInput(
            f"{profile.engine} runs on cards: say which (gpu_class: h100-80g), as `llmgw ctl nodes` shows them",
            field=f"{where}.gpu_class",
        )
    if profile.slots > 1 and profile.engine in ONE_SLOT_ENGINES:
        raise InvalidInput(f"{profile.engine} answers one request at a time: slots is 1", field=f"{where}.slots")
    if profile.tp > 1 and profile.engine in ONE_CARD_ENGINES:
        raise InvalidInput(f"{profile.engine} runs on one card: tp is 1", field=f"{where}.tp")
    if profile.tp > 1 and profile.gpu_class is None:
        raise InvalidInput("tp above 1 needs a gpu_class: a CPU profile runs on one node's memory", field=f"{where}.tp")
    check_shape(profile, where)
    if not 0 <= profile.min_memory_gb < 1e6:
        raise InvalidInput(f"{profile.min_memory_gb} is not a size in GB", field=f"{where}.min_memory_gb")


def check_shape(profile: Profile, where: str) -> None:
    """Cards and nodes come to the same number, and the engine can be divided so; raises InvalidInput."""
    _check_range(profile.nodes, 1, MAX_NODES, f"{where}.nodes")
    _check_range(profile.pp, 1, MAX_TP, f"{where}.pp")
    if profile.gpus_per_node is not None:
        _check_range(profile.gpus_per_node, 1, MAX_TP, f"{where}.gpus_per_node")
    for key in ("nodes", "pp"):
        if getattr(profile, key) > 1 and profile.engine not in MULTI_NODE_ENGINES:
            raise InvalidInput(
                f"{profile.engine} runs on one node, and there with tp alone; {key} above 1 is for "
                f"{' and '.join(MULTI_NODE_ENGINES)}",
                field=f"{where}.{key}",
            )
    # What `tp` means to an engine that deals layers out is its own affair: it has one node, and no number beside it.
    cards = profile.tp * profile.pp
    if profile.gpus_per_node is None and cards % profile.nodes:
        raise InvalidInput(
            f"tp {profile.tp} × pp {profile.pp} are {plural(cards, 'card')}, which {profile.nodes} nodes cannot have "
            "as many of each",
            field=f"{where}.nodes",
        )
    if cards != profile.nodes * profile.cards_per_node:
        raise InvalidInput(
            f"tp {profile.tp} × pp {profile.pp} are {plural(cards, 'card')}, and {plural(profile.nodes, 'node')} with "
            f"{plural(profile.cards_per_node, 'card')} each have {profile.nodes * profile.cards_per_node}: "
            "make them the same",
            field=f"{where}.gpus_per_node",
        )
    if profile.cards_per_node > MAX_TP:
        raise InvalidInput(
            f"tp {profile.tp} × pp {profile.pp} are {plural(cards, 'card')}, and a node has at most {MAX_TP}: "
            "name more nodes",
            field=f"{where}.nodes",
        )


def _check_prices(prices: Prices) -> None:
    for name in prices.__struct_fields__:
        price: float | None = getattr(prices, name)
        # Written so that NaN, which compares with nothing, is refused too.
        if price is not None and not 0 <= price <= MAX_PRICE:
            raise InvalidInput(
                f"{price} is not a price: 0 to {MAX_PRICE:g}, in currency per million tokens", field=f"prices.{name}"
            )


def _check_range(value: int, low: int, high: int, field: str) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{value} is outside {low} to {high}", field=field)
