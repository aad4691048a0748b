"""What it is worth to send a prompt where its beginning was read: engines that remember, and conversations.

Each router has engines of its own that begin with empty caches, and is sent the same prompts in the same order by as
many clients. The engines are simulated: a token of a prompt that is not in their cache takes them a fixed time. So
the figures tell routers apart; they say nothing of any real engine.
"""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from llmgw.core.routing import Scoring
from llmgw.sim.prefixes import PrefixCache
from tests.bench.gateways import Gateway, Maker
from tests.bench.load import PATH
from tests.bench.native import Missing
from tests.bench.ours import router
from tests.bench.report import spread, table
from tests.bench.rivals import vllm_router
from tests.bench.sim_engines import sim_engine, taken
from tests.bench.talks import Prompt

ENGINES = 4
CLIENTS = 24
SLOTS = 8
CACHE_KB = 768
"""Of each engine: a quarter or so of what the prompts of a whole run come to."""
PREFILL_PER_TOKEN_US = 400
RATE = 250
CTX = 131_072
ENDLESS_KB = 1 << 24
ANSWER_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One router in one round."""

    gateway: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    first_ms: tuple[float, float]
    """Median and 95th percentile of the first token."""
    seconds: float
    busiest: float
    """The busiest engine's requests, over the mean."""
    wrong: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that engines did not compute again."""
        return self.cached_tokens / max(1, self.prompt_tokens)


@dataclass(kw_only=True)
class PrefixFigures:
    """All rounds of all routers."""

    trace: str
    most: float
    """Hit rate of one engine that has them all and forgets nothing."""
    rounds: list[Replay] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """What came wrong, by router."""
        return [f"{r.gateway}: {why}" for r in self.rounds for why in r.wrong]


@dataclass(kw_only=True)
class _Seen:
    """What the clients of one replay saw, under its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    first_ms: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    wrong: list[str] = field(default_factory=list)


def lineup(names: Sequence[str], ports: Sequence[int]) -> dict[str, Maker]:
    """The routers of these names before engines at these ports; ours also by load alone and taking turns."""
    others = tuple(ports[1:])
    by_load = Scoring(sticky=False, prefix=False)
    turns = Scoring(load=False, sticky=False, prefix=False)
    known: dict[str, dict[str, Maker]] = {
        "router": {
            "llmgw, all on": partial(router, others=others),
            "llmgw, by load": partial(router, others=others, scoring=by_load),
            "llmgw, turns": partial(router, others=others, scoring=turns),
        },
        "vllm-router": {
            "vllm-router, cache_aware": partial(vllm_router, others=others, policy="cache_aware"),
            "vllm-router, turns": partial(vllm_router, others=others),
        },
    }
    return {title: make for name in names for title, make in known.get(name, {}).items()}


def measure_prefix(
    names: Sequence[str], rounds: int, asked: Sequence[Prompt], trace: str, directory: Path
) -> PrefixFigures:
    """Interleaved rounds; routers that do not start are skipped."""
    figures = PrefixFigures(trace=trace, most=endless(asked))
    for number in range(rounds):
        for title in lineup(names, [0]):
            if title in figures.skipped:
                continue
            made = directory / f"{number}-{title.replace(' ', '').replace(',', '-')}"
            made.mkdir()
            try:
                with contextlib.ExitStack() as stack:
                    ports = [stack.enter_context(_engine()) for _ in range(ENGINES)]
                    gateway = lineup(names, ports)[title](stack, made / "gateway", ports[0])
                    figures.rounds.append(replay(title, gateway, ports, asked))
            except Missing as error:
                figures.skipped[title] = str(error)
    order = list(lineup(names, [0]))
    figures.rounds.sort(key=lambda r: order.index(r.gateway))
    return figures


def endless(asked: Sequence[Prompt]) -> float:
    """Share of the prompts' bytes that came before, in the order they are sent."""
    cache, texts = PrefixCache(ENDLESS_KB), [prompt.text.encode() for prompt in asked]
    return sum(map(cache.read, texts)) / max(1, sum(map(len, texts)))


def _engine() -> contextlib.AbstractContextManager[int]:
    """A simulated engine with an empty cache; its port."""
    flags = ["--prefix-cache-kb", str(CACHE_KB), "--prefill-per-token-us", str(PREFILL_PER_TOKEN_US)]
    return sim_engine(*flags, "--prefill-ms", "5", "--rate", str(RATE), "--ctx-size", str(CTX), slots=SLOTS)


def replay(
    title: str, gateway: Gateway, ports: Sequence[int], asked: Sequence[Prompt], clients: int = CLIENTS
) -> Replay:
    """Send every prompt once, in their order, by so many clients that each wait for the answer before the next."""
    seen, left = _Seen(), iter(asked)
    threads = [threading.Thread(target=_client, args=(gateway, left, seen)) for _ in range(clients)]
    before, began = [taken(port) for port in ports], time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    done = [taken(port) - was for port, was in zip(ports, before, strict=True)]
    ordered = sorted(seen.first_ms) or [0.0]
    return Replay(
        gateway=title,
        requests=len(seen.first_ms),
        prompt_tokens=seen.prompt_tokens,
        cached_tokens=seen.cached_tokens,
        first_ms=(ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]),
        seconds=took,
        busiest=max(done) * len(done) / max(1, sum(done)),
        wrong=tuple(seen.wrong[:3]),
    )


def _client(gateway: Gateway, left: Iterator[Prompt], seen: _Seen) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=ANSWER_S)
    with contextlib.closing(connection):
        while True:
            with seen.lock:
                prompt = next(left, None)
            if prompt is None:
                return
            try:
                _ask(connection, gateway.key, prompt, seen)
            except (OSError, http.client.HTTPException, ValueError) as error:
                connection.close()
                with seen.lock:
                    seen.wrong.append(f"{type(error).__name__}: {error}"[:200])


def _ask(connection: http.client.HTTPConnection, key: str, prompt: Prompt, seen: _Seen) -> None:
    body = json.dumps(
        {
            "model": "bench",
            "messages": [{"role": "user", "content": prompt.text}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": prompt.tokens,
        }
    )
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    began, first, usage = time.perf_counter(), 0.0, None
    connection.request("POST", PATH, body, headers)
    response = connection.getresponse()
    if response.status != 200:
        raise ValueError(f"{response.status} {response.read()[:120]!r}")
    while line := response.readline():
        if line.startswith(b"data: {"):
            first = first or time.perf_counter()
            usage = json.loads(line[6:]).get("usage") or usage
    if usage is None:
        raise ValueError("an answer without usage")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    with seen.lock:
        seen.first_ms.append((first - began) * 1e3)
        seen.prompt_tokens += usage["prompt_tokens"]
        seen.cached_tokens += cached


def prefix_text(figures: PrefixFigures) -> str:
    """A row a router."""
    head = ["", "rounds", "requests", "hit rate", "first token p50 ms", "p95 ms", "seconds", "busiest engine", "wrong"]
    by_router: Mapping[str, list[Replay]] = {
        name: [r for r in figures.rounds if r.gateway == name]
        for name in dict.fromkeys(r.gateway for r in figures.rounds)
    }
    rows = [
        [
            name,
            str(len(rounds)),
            str(sum(r.requests for r in rounds)),
            spread([r.hit_rate * 100 for r in rounds], 1) + " %",
            spread([r.first_ms[0] for r in rounds], 0),
            spread([r.first_ms[1] for r in rounds], 0),
            spread([r.seconds for r in rounds], 1),
            spread([r.busiest for r in rounds], 2) + "×",
            str(sum(len(r.wrong) for r in rounds)),
        ]
        for name, rounds in by_router.items()
    ]
    title = (
        f"prefix: {figures.trace}; {ENGINES} engines of {SLOTS} slots and {CACHE_KB} KB of prompts, {CLIENTS} clients;"
    )
    notes = [f"one engine with an endless cache would have {figures.most * 100:.1f} %"]
    notes += [f"skipped: {name}: {why}" for name, why in figures.skipped.items()]
    return "\n".join([f"{title} medians (lowest–highest)", table([head, *rows]), *notes])
