"""The requests of the pictures: served, retried, waited, refused, broken off, and one with names like markup."""

from llmgw.api.request_types import RequestQuery
from llmgw.core.requests import RequestLine, Tried
from tests.console.showcase_names import HOSTILE_MODEL, MODEL
from tests.support.fleet_rows import NOW

REQUEST = "req-8f2c01d7a9b344e1902f4a"
"""The one that is opened."""


def request_lines() -> tuple[RequestLine, ...]:
    """The newest first."""
    served = (
        _served(number, model, key, tokens, first_ms, took_ms)
        for number, (model, key, tokens, first_ms, took_ms) in enumerate(_SERVED)
    )
    return tuple(sorted((*served, *_remarkable()), key=lambda line: -line.at))


def matching(query: RequestQuery) -> tuple[RequestLine, ...]:
    """Those that are asked for."""
    return tuple(line for line in request_lines() if query.matches(line))[: query.limit]


_SERVED = (
    (MODEL, "ci", (1204, 388), 212.0, 5210.0),
    ("llama-3.3-70b", "chat-frontend", (3310, 512), 640.0, 14_300.0),
    ("qwen2.5-7b", "batch-labels", (410, 22), 61.0, 330.0),
    ("embed-m3", "search-index", (8100, 0), None, 48.0),
    (MODEL, "thesis-runs", (900, 1204), 180.0, 16_100.0),
    ("qwen2.5-7b", "batch-labels", (398, 25), 58.0, 341.0),
)


def _served(
    number: int, model: str, key: str, tokens: tuple[int, int], first_ms: float | None, took_ms: float
) -> RequestLine:
    replica = f"{model}-{number + 10:04x}"
    return RequestLine(
        id=f"req-8f2c01d7a9b344e1902f{number:02x}",
        at=NOW - 4.0 * number - 1.5,
        status=200,
        end="complete",
        route="/v1/chat/completions",
        key_id=f"key-{number + 1}",
        key=key,
        team="research",
        tenant="acme",
        model=model,
        replica=replica,
        node="gpu03",
        stream=first_ms is not None,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cost_micros=tokens[0] + 4 * tokens[1],
        attempts=(Tried(replica=replica, node="gpu03", chosen_by="load", at_ms=0.2, duration_ms=took_ms),),
        first_token_ms=first_ms,
        duration_ms=took_ms,
        client="10.4.0.17",
    )


def _remarkable() -> tuple[RequestLine, ...]:
    return (
        RequestLine(
            id=REQUEST,
            at=NOW - 7.0,
            status=200,
            end="complete",
            route="/v1/chat/completions",
            key_id="key-6",
            key="thesis-runs",
            team="research",
            tenant="acme",
            model=MODEL,
            replica="qwen3-coder-30b-0d44",
            node="gpu03",
            stream=True,
            input_tokens=2310,
            cached_tokens=2048,
            output_tokens=640,
            cost_micros=974,
            band="bronze",
            waited_ms=1810.0,
            waited_for=f"{MODEL}'s 4 replicas were saturated (9 of 8 waiting, KV 92%)",
            attempts=(
                Tried(
                    replica="qwen3-coder-30b-33f1",
                    node="gpu04",
                    chosen_by="load",
                    failed="it cannot be reached: Connection refused",
                    at_ms=1811.0,
                    duration_ms=41.0,
                ),
                Tried(
                    replica="qwen3-coder-30b-0d44", node="gpu03", chosen_by="prefix", at_ms=1853.0, duration_ms=9880.0
                ),
            ),
            first_token_ms=2260.0,
            duration_ms=11_733.0,
            client="10.4.0.23",
            trace="4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        RequestLine(
            id="req-8f2c01d7a9b344e1902f4b",
            at=NOW - 12.0,
            status=429,
            end="refused",
            route="/v1/chat/completions",
            key_id="key-1",
            key="ci",
            model=MODEL,
            code="rate_limit_exceeded",
            limit="key/rpm",
            said="Rate limit of key 'ci' (key-1) reached: 60 requests a minute, 0 left. Try again in 9 s.",
            retry_s=9.0,
            client="10.4.0.31",
            passed_over=212,
        ),
        RequestLine(
            id="req-8f2c01d7a9b344e1902f4c",
            at=NOW - 15.0,
            status=200,
            end="lost",
            route="/v1/chat/completions",
            key_id="key-2",
            key="chat-frontend",
            model="mistral-large",
            replica="mistral-large-c901",
            node="gpu07",
            stream=True,
            input_tokens=511,
            output_tokens=93,
            attempts=(
                Tried(
                    replica="mistral-large-c901",
                    node="gpu07",
                    failed="its answers break off midway",
                    at_ms=0.3,
                    duration_ms=4410.0,
                ),
            ),
            first_token_ms=1900.0,
            duration_ms=4410.0,
            client="10.4.0.9",
        ),
        RequestLine(
            id="req-8f2c01d7a9b344e1902f4d",
            at=NOW - 33.0,
            status=404,
            end="refused",
            route="/v1/chat/completions",
            key_id="key-3",
            key="[b]batch[/]",
            asked=HOSTILE_MODEL,
            code="model_not_found",
            client="10.4.0.31",
        ),
    )
