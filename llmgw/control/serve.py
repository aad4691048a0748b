"""What `model serve` leaves open is chosen here, and the result is an ordinary catalog entry that can be added again.

A name comes from the source, an engine from the source's kind, the profile is CPU unless cards were asked for.
"""

import msgspec

from llmgw.api.types import ServeRequest
from llmgw.control import external
from llmgw.core.catalog import (
    CARD_ENGINES,
    GGUF_ENGINES,
    ONE_SLOT_ENGINES,
    PICTURE_ENGINES,
    Model,
    Profile,
    check_model,
)
from llmgw.core.errors import InvalidInput
from llmgw.core.flags_freetoken import other_context
from llmgw.core.flags_strata import not_told
from llmgw.core.serving import ends_in_gguf, names_gguf, profile_for, shape_of
from llmgw.core.sources import default_model_name, parse_source
from llmgw.core.units import plural

DEFAULT_SLOTS = 4


def model_for(request: ServeRequest) -> Model:
    """The whole, checked catalog entry for a request; raises InvalidInput naming the field."""
    source = parse_source(request.source)
    model = Model(
        name=request.name or default_model_name(source),
        source=request.source.strip(),
        aliases=request.aliases,
        context_length=request.context_length,
        max_output=request.max_output,
        scaling=request.scaling,
        profiles=request.profiles or (_profile(request),),
    )
    apart = ("engine", "gpu_class", "tp", "pp", "nodes", "args", "slots")
    if request.profiles and any(getattr(request, field) for field in apart):
        raise InvalidInput(f"{', '.join(apart[:-1])} and {apart[-1]} belong in the profiles when those are given")
    check_model(model)
    check_servable(model)
    return model


def check_servable(model: Model) -> None:
    """Refuse what no engine here could load, before anything is fetched."""
    parse_source(model.source)
    if not model.profiles:
        raise InvalidInput("a model needs at least one profile", field="profiles")
    for i, profile in enumerate(model.profiles):
        simulated = model.source.startswith("sim:")
        if simulated != (profile.engine == "sim"):
            raise InvalidInput(
                f"engine {profile.engine} cannot load {model.source.partition(':')[0]}: sources",
                field=f"profiles[{i}].engine",
            )
        if profile.engine in GGUF_ENGINES and not names_gguf(model.source):
            raise InvalidInput(
                f"{profile.engine} loads GGUF files and {model.source!r} names none: end it with the file, "
                "as in hf:ORG/REPO@REVISION/FILE.gguf, or run it on cards with vllm or sglang (gpu_class)",
                field="source",
            )
        if profile.engine in PICTURE_ENGINES and not _names_checkpoint(model.source):
            raise InvalidInput(
                f"{profile.engine} loads one checkpoint and {model.source!r} names none: end it with the file, "
                "as in hf:ORG/REPO@REVISION/FILE.safetensors",
                field="source",
            )
        if profile.engine in set(CARD_ENGINES).difference(GGUF_ENGINES) and ends_in_gguf(model.source):
            raise InvalidInput(
                f"{profile.engine} loads a repository of safetensors and {model.source!r} names a GGUF file: "
                "leave the file out, as in hf:ORG/REPO@REVISION, or take llamacpp",
                field="source",
            )
        if profile.engine == "freetoken" and (why := other_context(profile.args, model.context_length)):
            raise InvalidInput(why, field=f"profiles[{i}].args")
        if profile.engine == "strata" and (why := not_told(profile.args)):
            raise InvalidInput(why, field=f"profiles[{i}].args")


def describe(model: Model) -> str:
    """`smollm2: 1 replica wanted, 4096 tokens a request`."""
    if model.external:
        return external.describe(model)
    parts = [f"{plural(model.wanted_replicas, 'replica')} wanted"]
    if model.context_length:
        parts.append(f"{model.context_length} tokens a request")
    if model.max_output:
        parts.append(f"answers up to {model.max_output}")
    spread = next((profile for profile in model.profiles if profile.nodes > 1 or profile.pp > 1), None)
    if spread is not None:
        parts.append(f"each on {shape_of(spread)}")
    return f"{model.name}: " + ", ".join(parts)


def changed_fields(before: Model, after: Model) -> tuple[str, ...]:
    """Names of the fields that differ, in the order of the type."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    return tuple(name for name in Model.__struct_fields__ if old[name] != new[name])


def _profile(request: ServeRequest) -> Profile:
    profile = profile_for(
        request.source,
        engine=request.engine,
        gpu_class=request.gpu_class,
        tp=request.tp,
        pp=request.pp,
        nodes=request.nodes,
    )
    slots = request.slots or (1 if profile.engine in ONE_SLOT_ENGINES else DEFAULT_SLOTS)
    return msgspec.structs.replace(profile, args=request.args, slots=slots)


def _names_checkpoint(source: str) -> bool:
    return source.partition("#")[0].partition("?")[0].lower().endswith(".safetensors")
