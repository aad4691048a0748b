"""The demo's simulated fleet: how large it is, what it serves, and the command that runs it. Said to be simulated by
every name: nodes and models begin with `sim-`, sources with `sim:`.

Its size is kept: nodes that joined are nodes of the cluster, and a demo that came back without them would miss them.
"""

import contextlib
from pathlib import Path

import msgspec

from llmgw.core.catalog import Model, Profile, Scaling
from llmgw.demo.children import command
from llmgw.demo.files import DemoFiles, replace_file
from llmgw.sim.fleet.cards import A100, H100, L40S, MIX, RTX_4090, CardModel
from llmgw.sim.fleet.options import parse_size


class FleetSize(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, and cards of each; kept in `fleet/size.json`."""

    nodes: int
    cards: int


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a fleet of some size serves."""

    name: str
    source: str
    cards: tuple[CardModel, ...]
    """Kinds it may run on, the best first."""
    share: float
    """Replicas for each node of the first kind."""
    tp: int = 1
    slots: int = 16
    """At that tp; fewer cards take fewer."""
    least_tp: int = 1
    context_length: int = 16_384
    from_nodes: int = 1
    """Served when the fleet has so many nodes of the first kind."""


WISHES = (
    _Wish(
        name="sim-llama-3.3-70b",
        source="sim:llama-3.3-70b,weights-gb=71,kv-kb=164",
        cards=(H100,),
        share=0.6,
        tp=4,
        least_tp=2,
        slots=64,
    ),
    _Wish(
        name="sim-mistral-small-24b",
        source="sim:mistral-small-24b,weights-gb=48,kv-kb=164",
        cards=(H100, A100),
        share=0.8,
        context_length=8192,
        from_nodes=2,
    ),
    _Wish(
        name="sim-qwen3-32b",
        source="sim:qwen3-32b,weights-gb=33,kv-kb=131",
        cards=(A100,),
        share=0.9,
        tp=2,
        slots=32,
    ),
    _Wish(name="sim-qwen3-8b", source="sim:qwen3-8b,weights-gb=16.4,kv-kb=74", cards=(L40S,), share=2.0),
    _Wish(
        name="sim-phi-4-mini",
        source="sim:phi-4-mini,weights-gb=7.7,kv-kb=66",
        cards=(RTX_4090,),
        share=1.5,
        slots=8,
    ),
)
UNPLACED = Model(
    name="sim-deepseek-r1",
    source="sim:deepseek-r1,weights-gb=688,kv-kb=70",
    context_length=32_768,
    profiles=(Profile(name="b200", engine="sim", gpu_class="b200-180g", tp=8, slots=8),),
)
"""Wanted, and no card of the fleet is of its class: something that needs attention."""


def size_from(text: str) -> FleetSize:
    """The size `12x8` says; raises InvalidInput."""
    nodes, cards = parse_size(text)
    return FleetSize(nodes=nodes, cards=cards)


def resolve_size(files: DemoFiles, asked: FleetSize | None) -> FleetSize | None:
    """The fleet to run: what was asked, never fewer nodes than joined before; none when there never was one."""
    kept = _kept(files)
    if asked is None or kept is None:
        return asked or kept
    return FleetSize(nodes=max(asked.nodes, kept.nodes), cards=asked.cards)


def keep_size(files: DemoFiles, size: FleetSize) -> None:
    """Note the size for the next start."""
    files.fleet.mkdir(mode=0o700, exist_ok=True)
    replace_file(_size_file(files), msgspec.json.encode(size).decode() + "\n")


def fleet_command(files: DemoFiles, size: FleetSize) -> list[str]:
    """The fleet's command line."""
    return command(
        *("sim-fleet", "--nodes", str(size.nodes), "--gpus", str(size.cards)),
        *("--server", f"unix:{files.server.admin_socket}", "--data", str(files.fleet)),
    )


def models(size: FleetSize) -> tuple[Model, ...]:
    """What a fleet of that size serves, and the one it cannot."""
    kinds = [MIX[index % len(MIX)] for index in range(size.nodes)]
    found = []
    for wish in WISHES:
        nodes = kinds.count(wish.cards[0])
        tp = min(wish.tp, size.cards)
        if nodes >= wish.from_nodes and tp >= wish.least_tp:
            found.append(_model(wish, tp, max(1, round(nodes * wish.share))))
    return (*found, UNPLACED)


def _model(wish: _Wish, tp: int, replicas: int) -> Model:
    count = min(replicas, 64)
    return Model(
        name=wish.name,
        source=wish.source,
        context_length=wish.context_length,
        scaling=Scaling(min=count, max=2 * count),
        profiles=tuple(
            Profile(
                name=card.gpu_class,
                engine="sim",
                gpu_class=card.gpu_class,
                tp=tp,
                priority=len(wish.cards) - place,
                slots=max(1, wish.slots * tp // wish.tp),
            )
            for place, card in enumerate(wish.cards)
        ),
    )


def _kept(files: DemoFiles) -> FleetSize | None:
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(_size_file(files).read_bytes(), type=FleetSize)
    return None


def _size_file(files: DemoFiles) -> Path:
    return files.fleet / "size.json"
