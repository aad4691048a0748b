"""Gateways side by side under one shape of load: CPU a request, requests a second, and that every stream came right.

Rounds are interleaved: every gateway has its turn in each, so that a slower minute of the machine hits all.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.prices import cost_micros
from tests.bench.feed import PRICES, Feed
from tests.bench.gateways import Gateway, Maker, clients_for, gateways, head_of_post
from tests.bench.load import BODY, PATH, LoadPlan, run_load
from tests.bench.native import engine, load
from tests.bench.proc import cpu_ms, machine_busy_ms, memory, own_ms, tree, tree_cpu_ms
from tests.bench.report import ModeFigures, Sample

TOKENS = 64
CHECKED_STREAMS = 300
"""Streams read token by token before a gateway is measured."""
MAX_STREAMS = 1_000_000
PROMPT_TOKENS = 12
"""The engine says so in the usage it sends."""
LIMIT_HEADER = "x-ratelimit-limit-requests"
"""In the answer to a key that has limits."""
WARM_S = 1.0
CALM_CORES = 0.15
"""A sample during which others kept no more than this busy counts as undisturbed."""
USAGE_WAIT_S = 10.0
"""The router reports what it counted within this."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A shape of load."""

    name: str
    gap_us: int
    """Between two tokens of a stream."""
    clients: int


MODES = {
    shape.name: shape
    for shape in (
        Shape(name="burst", gap_us=200, clients=64),
        Shape(name="paced", gap_us=5000, clients=128),
        Shape(name="paced-512", gap_us=5000, clients=512),
    )
}


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    seconds: float
    """Of load, for one gateway in one round."""
    retakes: int
    """How often a sample is taken again because others kept the machine busy."""


def measure_mode(
    shape: Shape, makers: dict[str, Maker], effort: Effort, program: Path, directory: Path, *, title: str = ""
) -> ModeFigures:
    """All gateways under one shape of load."""
    figures = ModeFigures(mode=title or shape.name, gap_us=shape.gap_us, clients=shape.clients, tokens=TOKENS)
    with (
        engine(program, gap_us=shape.gap_us, tokens=TOKENS) as (engine_pid, engine_port),
        gateways(makers, directory, engine_port) as (running, figures.skipped),
    ):
        for gateway in running:
            figures.checked[gateway.name] = check(gateway, shape.clients)
            figures.does[gateway.name] = gateway.does
            load(directory, plan_for(gateway, shape.clients, WARM_S))
        for number in range(effort.rounds):
            for gateway in running[number % len(running) :] + running[: number % len(running)]:
                plan = plan_for(gateway, shape.clients, effort.seconds)
                figures.samples.append(_measure_quietly(gateway, engine_pid, plan, directory, effort.retakes))
        figures.samples.sort(key=lambda sample: [gateway.name for gateway in running].index(sample.gateway))
        figures.memory = {gateway.name: memory(tree(gateway.roots)) for gateway in running if gateway.roots}
    return figures


def _measure_quietly(gateway: Gateway, engine_pid: int, plan: LoadPlan, directory: Path, retakes: int) -> Sample:
    """One sample; taken again, up to `retakes` times, while others keep the machine busy. The calmest counts."""
    samples: list[Sample] = []
    while len(samples) <= retakes:
        samples.append(measure(gateway, engine_pid, plan, directory))
        if samples[-1].strangers <= CALM_CORES:
            break
    return min(samples, key=lambda sample: max(sample.strangers, CALM_CORES))


def measure(gateway: Gateway, engine_pid: int, plan: LoadPlan, directory: Path) -> Sample:
    """One gateway, once."""
    cpu, engine_cpu, busy, own = tree_cpu_ms(gateway.roots), cpu_ms([engine_pid]), machine_busy_ms(), own_ms()
    began = time.monotonic()
    seen = load(directory, plan)
    took_ms = (time.monotonic() - began) * 1000
    cpu, engine_cpu = tree_cpu_ms(gateway.roots) - cpu, cpu_ms([engine_pid]) - engine_cpu
    own = own_ms() - own
    strangers = machine_busy_ms() - busy - own - cpu - engine_cpu
    requests = max(1, seen.requests)
    return Sample(
        gateway=gateway.name,
        clients=plan.clients,
        requests=seen.requests,
        errors=seen.errors,
        cpu_ms=cpu / requests,
        engine_cpu_ms=engine_cpu / requests,
        per_s=seen.requests / seen.seconds,
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        cores=cpu / took_ms,
        engine_cores=engine_cpu / took_ms,
        load_cores=own / took_ms,
        strangers=max(0.0, strangers / took_ms),
    )


def check(gateway: Gateway, clients: int) -> str:
    """Read streams token by token, and for our router see that each was counted; `ok` or what is wrong."""
    clients = clients_for(gateway, clients)
    plan = LoadPlan(
        port=gateway.port,
        clients=clients,
        streams=clients if gateway.few else max(CHECKED_STREAMS, clients),
        seconds=60,
        tokens=TOKENS,
        key=gateway.key,
        tls=gateway.tls,
    )
    seen = run_load(plan)
    if seen.wrong or seen.requests != plan.streams:
        return f"{seen.requests} of {plan.streams} right; {seen.wrong}"
    return "ok" if gateway.feed is None else _check_counts(gateway, gateway.feed, plan.streams)


def _check_counts(gateway: Gateway, feed: Feed, streams: int) -> str:
    """Whether our router counted and priced the streams, all it ever served, and holds their key to its limits."""
    deadline = time.monotonic() + USAGE_WAIT_S
    while feed.usage_rows < streams and time.monotonic() < deadline:
        time.sleep(0.05)
    cost = streams * cost_micros(PRICES, input_tokens=PROMPT_TOKENS, cached_tokens=0, output_tokens=TOKENS)
    if (feed.usage_rows, feed.output_tokens, feed.cost_micros) != (streams, streams * TOKENS, cost):
        counted = f"{feed.usage_rows} requests, {feed.output_tokens} tokens, {feed.cost_micros} micros"
        return f"counted {counted} instead of {streams}, {streams * TOKENS}, {cost}"
    if LIMIT_HEADER not in head_of_post(gateway.port, PATH, BODY, gateway.key, tls=gateway.tls):
        return "its key is held to no limits"
    return "ok"


def plan_for(gateway: Gateway, clients: int, seconds: float) -> LoadPlan:
    """So many seconds of load on a gateway, by as many of the clients as it is given."""
    return LoadPlan(
        port=gateway.port,
        clients=clients_for(gateway, clients),
        streams=MAX_STREAMS,
        seconds=seconds,
        tokens=TOKENS,
        key=gateway.key,
        tls=gateway.tls,
    )
