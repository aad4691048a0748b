"""`python -m llmgw.sim.engine`: a simulated LLM engine that keeps the whole promise of a real one, at next to no CPU.

It serves OpenAI's API over HTTP/1.1: `GET /health` (200 `{"status":"ok"}`, or `{"status":"loading"}` with
`--loading-code`), `GET /v1/models`, `GET /metrics`, `POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`.
Answers are the same for the same seed, model and prompt. An answer ends after `--answer-tokens` (finish reason
`stop`), or earlier at `max_tokens` or the end of the context (`length`); `"ignore_eos": true` goes on to that limit.
The head and the first token leave together after the prefill, then a token an event. With `--prefix-cache-kb`, what a
prompt begins with takes no prefill while it is still held, and usage says how much that was (`cached_tokens`).

An adapter builds the command line with `llmgw.sim.options.engine_argv`:

    python -m llmgw.sim.engine --host 127.0.0.1 --port 18000 --model NAME [--alias NAME]... --slots 4 --ctx-size 4096
        [--api-key-file FILE] [--rate TOKENS_PER_S] [--prefill-ms MS] [--prefill-per-token-us US] [--jitter FRACTION]
        [--prefix-cache-kb KB] [--seed N] [--answer-tokens N] [--chunk TOKENS] [--queue N] [--start-delay S]
        [--loading-code 200|503] [--keep-alive S] [--fault SPEC] [--exit-after S] [--crash-on-start] [--ignore-term]

`--ctx-size` is what one request may span; slots do not divide it. The key may come in LLMGW_ENGINE_KEY instead of a
file; with a key, everything under `/v1` needs it. `listening on http://HOST:PORT` is printed when it listens.

Faults (`llmgw.sim.faults`) come, in this order of precedence, from the body's `"sim": {"fault": "drop:3"}`, the header
`x-sim-fault`, and `--fault`. The body's `sim` object also takes `tokens`, `text`, `rate`, `prefill_ms` and `chunk`.
SIGTERM and SIGINT end it with 0 (unless `--ignore-term`); a bad command line is 2, a crash that was asked for 1.
"""

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

import trio

from llmgw.core.errors import InvalidInput
from llmgw.sim.accepting import accept, listen
from llmgw.sim.options import EngineOptions, parse_options
from llmgw.sim.service import Engine


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal; the exit code."""
    try:
        options = parse_options(argv, environment=dict(os.environ))
    except InvalidInput as error:
        print(f"llmgw.sim.engine: {error.message}", file=sys.stderr)
        return 2
    if options.crash_on_start:
        print("llmgw.sim.engine: crashing at start, as asked", file=sys.stderr)
        return 1
    _raise_descriptor_limit()
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        print(f"llmgw.sim.engine: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    trio.run(_process, listener, options)
    return 0


async def serve(
    listener: socket.socket, engine: Engine, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve `listener` until cancelled, then close it and every connection."""
    with contextlib.closing(listener):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            task_status.started()
            await accept(listener, nursery, engine.serve)


async def _process(listener: socket.socket, options: EngineOptions) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, listener, Engine(options))
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"listening on http://{shown}:{port} model={options.names[0]}", flush=True)
            if options.exit_after_s is not None:
                nursery.start_soon(_die_after, options.exit_after_s)
            async for number in signals:
                if not (options.ignore_term and number == signal.SIGTERM):
                    break
            nursery.cancel_scope.cancel()


async def _die_after(seconds: float) -> None:
    await trio.sleep(seconds)
    os._exit(1)


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
