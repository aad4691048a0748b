"""The sim engine's command line, as types: what an adapter builds, the engine parses to the same options.

A model whose source is `sim:` or `sim:NAME` runs on this engine. After that may stand its defaults, the long flags
without their dashes: `sim:NAME,rate=40,prefill-ms=80,jitter=0.2`. What the model would weigh (`weights-gb`, `kv-kb`)
may stand there too; that is placement's business and nothing to the engine.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import InvalidInput
from llmgw.core.sources import SIM_OPTIONS
from llmgw.sim.faults import parse_faults

DEFAULT_RATE = 40.0
"""Tokens a second a stream, about a mid-sized model on one card."""

KEY_VARIABLE = "LLMGW_ENGINE_KEY"
"""Environment variable with the engine's key, for launchers that keep no file."""

SOURCE_SCHEME = "sim:"
SOURCE_OPTIONS = (
    "rate",
    "prefill-ms",
    "prefill-per-token-us",
    "jitter",
    "seed",
    "answer-tokens",
    "prefix-cache-kb",
    "chunk",
    "queue",
    "start-delay",
    "loading-code",
    "keep-alive",
    "exit-after",
    "fault",
)
"""Flags a `sim:` source may set; the others are the launcher's."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """All that decides how a sim engine behaves."""

    names: tuple[str, ...]
    """Names it answers to, the served one first."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one; the address is printed on stdout."""
    slots: int = 4
    """Requests worked on at once."""
    queue: int = 512
    """Requests that wait for a slot; one more is refused with 503."""
    ctx_size: int = 4096
    """Tokens one request may span, prompt and answer."""
    rate: float = DEFAULT_RATE
    """Tokens a second a stream; 0 is as fast as the socket takes them."""
    chunk: int = 1
    """Tokens a write; each is an event of its own all the same."""
    prefill_ms: float = 20.0
    prefill_per_token_us: float = 20.0
    jitter: float = 0.0
    """Each gap varies by this fraction either way, 0 to 1."""
    seed: int = 0
    answer_tokens: int = 64
    """Length of an answer that is not cut short by the request or the context."""
    prefix_cache_kb: int = 0
    """Prompts it holds, so that it need not compute again what other prompts begin with; 0 holds none."""
    keys: tuple[bytes, ...] = ()
    """API keys; none lets everyone in."""
    start_delay_s: float = 0.0
    loading_code: int = 503
    """Status of `/health` while the model loads; engines differ, so only the body can be trusted."""
    keep_alive_s: float = 300.0
    """An idle connection is closed after this long."""
    fault: str = ""
    """Faults of every request that names none."""
    exit_after_s: float | None = None
    crash_on_start: bool = False
    ignore_term: bool = False


def engine_argv(
    *,
    host: str,
    port: int,
    model: str,
    aliases: Sequence[str] = (),
    slots: int = 4,
    ctx_size: int = 4096,
    api_key_file: Path | None = None,
    source: str = SOURCE_SCHEME,
    args: Sequence[str] = (),
) -> list[str]:
    """Arguments after `python -m llmgw.sim.engine`; the key stays in its file. Raises InvalidInput for a bad source."""
    argv = ["--host", host, "--port", str(port), "--model", model, "--slots", str(slots), "--ctx-size", str(ctx_size)]
    for alias in aliases:
        argv += ["--alias", alias]
    if api_key_file is not None:
        argv += ["--api-key-file", str(api_key_file)]
    return [*argv, *source_argv(source), *args]


def source_argv(source: str) -> list[str]:
    """Flags a `sim:` source stands for; raises InvalidInput naming the option that is wrong."""
    if not source.startswith(SOURCE_SCHEME):
        raise InvalidInput(f"{source[:80]!r} is no sim source; it begins with {SOURCE_SCHEME!r}", field="source")
    argv = []
    first, *parts = source.removeprefix(SOURCE_SCHEME).split(",")
    for part in filter(None, [first, *parts] if "=" in first else parts):
        name, equals, value = part.partition("=")
        if name in SIM_OPTIONS:
            continue
        if name not in SOURCE_OPTIONS or not equals:
            raise InvalidInput(
                f"{part[:80]!r} is not understood; write name=value with one of {', '.join(SOURCE_OPTIONS)}",
                field="source",
            )
        argv.append(f"--{name}={value}")
    if argv:
        parse_options(["--model", "x", *argv], environment={})
    return argv


def parse_options(argv: Sequence[str] | None, *, environment: dict[str, str]) -> EngineOptions:
    """Options from a command line and the environment's key; raises InvalidInput (`--help` exits as usual)."""
    flags = _parser().parse_args(argv)
    parse_faults(flags.fault)
    options = EngineOptions(
        names=(flags.model, *flags.alias),
        keys=_keys(flags.api_key_file, environment.get(KEY_VARIABLE, "")),
        start_delay_s=flags.start_delay,
        keep_alive_s=flags.keep_alive,
        exit_after_s=flags.exit_after,
        **{name: getattr(flags, name) for name in _SAME_NAME},
    )
    if not 0 <= options.jitter <= 1:
        raise InvalidInput(f"{options.jitter} is outside 0 to 1", field="--jitter")
    return options


_SAME_NAME = (
    "host",
    "port",
    "slots",
    "queue",
    "ctx_size",
    "rate",
    "chunk",
    "prefill_ms",
    "prefill_per_token_us",
    "jitter",
    "seed",
    "answer_tokens",
    "prefix_cache_kb",
    "loading_code",
    "fault",
    "crash_on_start",
    "ignore_term",
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse exits here; we raise instead
        raise InvalidInput(message)


def _parser() -> argparse.ArgumentParser:
    p = _Parser(prog="python -m llmgw.sim.engine", description="A simulated LLM engine.", allow_abbrev=False)
    d = EngineOptions(names=())
    p.add_argument("--host", default=d.host)
    p.add_argument("--port", type=_int(0, 65535), default=d.port, help="0 takes a free one")
    p.add_argument("--model", required=True, metavar="NAME", help="served name")
    p.add_argument("--alias", action="append", default=[], metavar="NAME", help="another name it answers to")
    p.add_argument("--slots", "--parallel", type=_int(1, 1 << 20), default=d.slots, help="requests worked on at once")
    p.add_argument("--queue", type=_int(0, 1 << 20), default=d.queue, help="requests that may wait; more are refused")
    p.add_argument("--ctx-size", type=_int(8, 1 << 24), default=d.ctx_size, help="tokens a request may span")
    p.add_argument(
        "--rate", type=_float(1e6), default=d.rate, help="tokens a second a stream; 0 is as fast as possible"
    )
    p.add_argument("--chunk", type=_int(1, 1 << 16), default=d.chunk, help="tokens a write")
    p.add_argument("--prefill-ms", type=_float(1e7), default=d.prefill_ms)
    p.add_argument("--prefill-per-token-us", type=_float(1e7), default=d.prefill_per_token_us)
    p.add_argument("--jitter", type=_float(1), default=d.jitter, metavar="FRACTION", help="how far each gap varies")
    p.add_argument("--seed", type=_int(0, 1 << 63), default=d.seed)
    p.add_argument("--answer-tokens", type=_int(1, 1 << 24), default=d.answer_tokens)
    p.add_argument("--prefix-cache-kb", type=_int(0, 1 << 24), default=d.prefix_cache_kb, help="prompts it holds")
    p.add_argument("--api-key-file", type=Path, metavar="FILE", help=f"a key a line; or set {KEY_VARIABLE}")
    p.add_argument("--start-delay", type=_float(1e6), default=d.start_delay_s, metavar="S", help="loads for so long")
    p.add_argument("--loading-code", type=int, choices=(200, 503), default=d.loading_code)
    p.add_argument("--keep-alive", type=_float(1e6), default=d.keep_alive_s, metavar="S")
    p.add_argument("--fault", default=d.fault, metavar="SPEC", help="faults of every request (llmgw/sim/faults.py)")
    p.add_argument("--exit-after", type=_float(1e6), default=None, metavar="S", help="die abruptly, exit code 1")
    p.add_argument("--crash-on-start", action="store_true", help="exit code 1 before listening")
    p.add_argument("--ignore-term", action="store_true", help="do not end on SIGTERM")
    return p


def _int(low: int, high: int) -> "_Number":
    return _Number(low, high, whole=True)


def _float(high: float) -> "_Number":
    return _Number(0, high, whole=False)


class _Number:
    """An argparse type with bounds; argparse names the flag in the error."""

    def __init__(self, low: float, high: float, *, whole: bool) -> None:
        self.low, self.high, self.whole = low, high, whole

    def __call__(self, text: str) -> float:
        try:
            value: float = int(text) if self.whole else float(text)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            kind = "a whole number" if self.whole else "a number"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {kind} from {self.low:g} to {self.high:g}")
        return value


def _keys(path: Path | None, from_environment: str) -> tuple[bytes, ...]:
    lines = [from_environment]
    if path is not None:
        try:
            lines += path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read {path}: {error}", field="--api-key-file") from error
    keys = tuple(line.strip().encode() for line in lines if line.strip())
    if path is not None and not keys:
        raise InvalidInput(f"{path} holds no key; write one a line", field="--api-key-file")
    return keys
