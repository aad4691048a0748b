"""`ctl models`, `ctl model …` and `ctl explain`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused, Usage
from llmgw.api.types import ModelInfo, ModelResult, ServeRequest
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import size
from llmgw.cli.groups.explain import explain_table
from llmgw.cli.output import Output
from llmgw.core.catalog import Model, Profile, Scaling, check_model
from llmgw.core.errors import InvalidInput
from llmgw.core.fallbacks import relying_on
from llmgw.core.money import NONE, money
from llmgw.core.prices import Prices

POLL_S = 0.5
"""How often --wait looks again: a person notices nothing shorter."""
MAX_MODEL_FILE_BYTES = 1024 * 1024
PLAN_OPTIONS = ("context", "max_output", "slots", "min", "max", "engine", "gpu_class", "tp", "pp", "nodes", "arg")
"""Options that say how a new model would be served."""


def models(ctx: Context) -> None:
    """The catalog, a line a model."""
    answer = ctx.client.models()
    if ctx.out.json:
        ctx.out.document(answer)
    else:
        model_table(ctx.out, answer)


def model_table(out: Output, answer: Sequence[ModelInfo], *, apart: bool = False) -> None:
    """A line a model."""
    rows = [
        [m.name, m.state, f"{m.ready}/{m.wanted}", str(m.context_length or "-"), m.source, m.message] for m in answer
    ]
    headers = ["MODEL", "STATE", "READY", "CONTEXT", "SOURCE", "MESSAGE"]
    out.table(headers, rows, empty="the catalog is empty: `llmgw ctl model serve SOURCE` fills it", apart=apart)


def show(ctx: Context) -> None:
    """One catalog entry in full."""
    model = ctx.client.model(ctx.args.name)
    if ctx.out.json:
        ctx.out.document(model)
        return
    facts = model.facts
    scaling = model.spec.scaling
    ctx.out.facts(
        [
            ("model", model.name),
            ("aliases", " ".join(model.spec.aliases)),
            ("state", f"{model.state}, {model.ready} of {model.wanted} ready"),
            ("message", model.message),
            ("source", model.source),
            ("context", f"{model.context_length} tokens" if model.context_length else ""),
            ("max output", f"{model.max_output} tokens" if model.max_output else ""),
            ("replicas", "" if model.spec.external else f"{scaling.min} to {scaling.max}"),
            ("falls back to", ", then ".join(model.spec.fallbacks)),
            ("prices", _prices(model.spec.prices)),
            ("cost today", money(model.cost_today_micros) if model.spec.prices else ""),
            ("weights", size(facts.weights_bytes) if facts and facts.weights_bytes else ""),
            ("architecture", f"{facts.architecture} {facts.quantization}".strip() if facts else ""),
        ]
    )
    if model.spec.external:
        outside = [[e.base_url, e.model or model.name, e.api_keys_file, e.ca_file] for e in model.spec.endpoints]
        ctx.out.table(["ENDPOINT", "ITS MODEL", "KEYS FILE", "CA FILE"], outside, apart=True)
        return
    rows = [
        [p.name, str(p.priority), p.engine, p.gpu_class or "CPU", _shape(p), str(p.slots), " ".join(p.args)]
        for p in model.spec.profiles
    ]
    ctx.out.table(["PROFILE", "PRIORITY", "ENGINE", "CARDS", "TP", "SLOTS", "ARGS"], rows, apart=True)


def _shape(profile: Profile) -> str:
    """Its cards: `4`, or `8 × 2 on 2 nodes` for stages and several nodes."""
    stages = f" × {profile.pp}" if profile.pp > 1 else ""
    return f"{profile.tp}{stages}" + (f" on {profile.nodes} nodes" if profile.nodes > 1 else "")


def _prices(prices: Prices | None) -> str:
    """`0.5 read, 0.05 cached, 1.5 written, a million tokens`."""
    if prices is None:
        return ""
    cached = prices.input if prices.cached_input is None else prices.cached_input
    return f"{prices.input:g} read, {cached:g} cached, {prices.output:g} written, a million tokens"


def serve(ctx: Context) -> None:
    """Serve a model from its source."""
    args = ctx.args
    _finish(ctx, ctx.client.serve(_request(args, name=args.name, aliases=_split(args.alias))))


def _request(args: argparse.Namespace, *, name: str | None, aliases: tuple[str, ...]) -> ServeRequest:
    minimum = 1 if args.min is None else args.min
    return ServeRequest(
        source=args.source,
        name=name,
        aliases=aliases,
        context_length=args.context,
        max_output=args.max_output,
        slots=args.slots,
        scaling=Scaling(min=minimum, max=max(1, minimum) if args.max is None else args.max),
        engine=args.engine,
        gpu_class=args.gpu_class,
        tp=args.tp,
        pp=args.pp,
        nodes=args.nodes,
        args=tuple(args.arg or ()),
    )


def _split(values: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def add(ctx: Context) -> None:
    """Add a whole catalog entry from a file."""
    model = _read_model(ctx.args.file)
    _finish(ctx, ctx.client.add(model, replace=ctx.args.replace))


def _read_model(name: str) -> Model:
    # YAML is imported by the one verb that reads it.
    from llmgw.core.yamlfile import decode_yaml

    where = "stdin" if name == "-" else name
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_MODEL_FILE_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_MODEL_FILE_BYTES + 1)
        model = decode_yaml(data, Model, where=where)
    except OSError as error:
        raise Usage(f"{where}: {error.strerror or error}") from error
    except InvalidInput as error:
        raise Usage(error.message) from error
    try:
        check_model(model)
    except InvalidInput as error:
        raise Usage(f"{where}: {error.message}") from error
    return model


def _finish(ctx: Context, result: ModelResult) -> None:
    if ctx.args.wait and result.model is not None:
        if not ctx.out.json:
            ctx.out.say(result.message)
        model = _wait(ctx, result.model.name)
        result = msgspec.structs.replace(
            result, message=f"{model.name} is {model.state}: {model.ready} of {model.wanted} ready", model=model
        )
    ctx.done(result, result.message)


def _wait(ctx: Context, name: str) -> ModelInfo:
    """The model once it is ready; narrates on the way. Raises Refused when it failed or was stopped meanwhile."""
    said = ""
    while True:
        model = ctx.client.model(name)
        if model.state == "ready":
            return model
        if model.state in ("failed", "stopped"):
            raise Refused(f"{name} is {model.state}: {model.message or 'no reason was given'}")
        sentence = f"{model.state}: {model.message}" if model.message else model.state
        if sentence != said:
            ctx.out.say(sentence)
            said = sentence
        time.sleep(POLL_S)


def _in_figures(client: AdminClient, name: str, what: str) -> str:
    model = client.model(name)
    replicas = [replica for replica in client.replicas(name) if replica.state not in ("stopped", "failed")]
    in_flight = sum(replica.in_flight for replica in replicas)
    return f"{what} {model.name}: ends {len(replicas)} replicas; {in_flight} requests are in flight."


def _relying(client: AdminClient, name: str) -> str:
    catalog = client.models()
    own = next((model.name for model in catalog if name in model.spec.names), name)
    names = relying_on(own, {model.name: model.spec.fallbacks for model in catalog})
    return f" It is a fallback of {', '.join(names)}." if names else ""


def stop(ctx: Context) -> None:
    """End a model's replicas, keep its entry."""
    name = ctx.args.name
    ctx.confirm(lambda client: _in_figures(client, name, "Stops"))
    result = ctx.client.stop(name)
    ctx.done(result, result.message)


def start(ctx: Context) -> None:
    """Serve a stopped model again."""
    _finish(ctx, ctx.client.start(ctx.args.name))


def scale(ctx: Context) -> None:
    """Set how many replicas are kept."""
    if ctx.args.max < max(1, ctx.args.min):
        raise Usage(f"MAX is {ctx.args.max}; it is at least 1 and not below MIN, {ctx.args.min}")
    result = ctx.client.scale(ctx.args.name, ctx.args.min, ctx.args.max)
    ctx.done(result, result.message)


def fallbacks(ctx: Context) -> None:
    """Say which models answer while this one cannot."""
    names = [name for name in ctx.args.fallbacks if name != NONE]
    if len(names) != len(ctx.args.fallbacks) and len(ctx.args.fallbacks) > 1:
        raise Usage(f"{NONE} stands alone: it ends every fallback")
    result = ctx.client.set_fallbacks(ctx.args.name, names)
    ctx.done(result, result.message)


def remove(ctx: Context) -> None:
    """Take a model out of the catalog."""
    name, purge = ctx.args.name, ctx.args.purge
    what = "Removes, with its weights," if purge else "Removes"
    ctx.confirm(lambda client: _in_figures(client, name, what) + _relying(client, name))
    result = ctx.client.remove(name, purge=purge)
    ctx.done(result, result.message)


def explain(ctx: Context) -> None:
    """Why a model is where it is; with --source, what would happen."""
    args = ctx.args
    if args.source is None:
        extra = next((key for key in PLAN_OPTIONS if getattr(args, key) is not None), None)
        if extra is not None:
            raise Usage(f"--{extra.replace('_', '-')} says how a new model would be served: give its --source too")
        answer = ctx.client.explain(args.name)
    else:
        answer = ctx.client.explain_serve(_request(args, name=args.name, aliases=()))
    if ctx.out.json:
        ctx.out.document(answer)
    else:
        explain_table(ctx.out, answer)


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("models",): models,
    ("model", "show"): show,
    ("model", "serve"): serve,
    ("model", "add"): add,
    ("model", "stop"): stop,
    ("model", "start"): start,
    ("model", "scale"): scale,
    ("model", "fallbacks"): fallbacks,
    ("model", "remove"): remove,
    ("explain",): explain,
}
