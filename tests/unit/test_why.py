"""What is said of a request, by table: why it waited, who failed it, when to come back, and where its time went."""

import itertools

import msgspec
import pytest

from llmgw.core.requests import RequestLine, Tried
from llmgw.core.why import headline, length, phases, sentences

AT = 1_767_225_630.0
"""00:00:30 UTC."""
SERVED = RequestLine(
    id="req-1",
    at=AT,
    status=200,
    end="complete",
    model="qwen",
    key_id="k1",
    key="ci",
    replica="r1",
    node="gpu01",
    stream=True,
    output_tokens=101,
    attempts=(Tried(replica="r1", node="gpu01", at_ms=0.2, duration_ms=2100.0),),
    first_token_ms=100.0,
    duration_ms=2100.0,
)


def line(**changes: object) -> RequestLine:
    """A served request with these changes."""
    return msgspec.structs.replace(SERVED, **changes)


PLAIN = ("answered by qwen in 2.1 s", "first token after 100 ms, then 101 tokens at 50 a second")
FAILED_FIRST = (
    Tried(replica="r1", node="gpu02", failed="it cannot be reached: Connection refused", duration_ms=1.5),
    Tried(replica="r2", node="gpu03", chosen_by="load", at_ms=41.0, duration_ms=2000.0),
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (SERVED, PLAIN),
        (
            line(waited_ms=1800.0, band="bronze", waited_for="qwen's 2 replicas were saturated"),
            ("waited 1.8 s in band bronze because qwen's 2 replicas were saturated", *PLAIN),
        ),
        (line(waited_ms=0.2, band="bronze"), PLAIN),
        (
            line(attempts=FAILED_FIRST),
            (
                "first tried on gpu02/r1: it cannot be reached: Connection refused, after 1.5 ms",
                "answered by gpu03/r2 (it had the least to do), asked after 41 ms",
                *PLAIN,
            ),
        ),
        (
            line(attempts=(Tried(replica="r1", chosen_by="prefix"),)),
            ("went to r1: it had read the beginning of the prompt", *PLAIN),
        ),
        (
            line(
                asked="glm", fallback=True,
                attempts=(Tried(replica="g1", model="glm", failed="it answers 500"), *FAILED_FIRST[1:]),
            ),
            (
                "first tried on glm on g1: it answers 500, after 0.0 ms",
                "answered by gpu03/r2 (it had the least to do), asked after 41 ms",
                "answered by qwen in place of glm in 2.1 s",
                PLAIN[1],
            ),
        ),
        (
            line(
                status=429, end="refused", attempts=(), first_token_ms=None, limit="key/rpm", retry_s=11.0,
                said="Rate limit of key 'ci' (k1) reached: 10 requests a minute, 0 left. Try again in 11 s.",
                code="rate_limit_exceeded", passed_over=3,
            ),
            (
                "refused with 429 by the limit of requests a minute of key 'ci': Rate limit of key 'ci' (k1) reached: "
                "10 requests a minute, 0 left. Try again in 11 s; to be asked again from 00:00:41 UTC on",
                "3 more requests of key 'ci' were refused before it and not written down",
            ),
        ),
        (
            RequestLine(id="r", at=AT, status=401, end="refused", code="invalid_api_key", passed_over=7),
            (
                "refused with 401 (invalid_api_key): its key is not known",
                "7 more requests without a good key were refused before it and not written down",
            ),
        ),
        (
            line(
                status=503, end="failed", code="model_not_ready", attempts=(), first_token_ms=None, retry_s=5.0,
                said="The model 'qwen' has no ready replica at the moment; try again shortly.",
            ),
            (
                "failed with 503 (model_not_ready): The model 'qwen' has no ready replica at the moment; try again "
                "shortly; to be asked again from 00:00:35 UTC on",
            ),
        ),
        (
            line(
                status=502, end="failed", code="engine_error", first_token_ms=None,
                attempts=(Tried(replica="r1", failed="it answers 500", duration_ms=3.0),),
            ),
            (
                "first tried on r1: it answers 500, after 3.0 ms",
                "failed with 502 (engine_error): the one replica that was asked failed",
            ),
        ),
        (line(end="left", status=499), ("the client left after 2.1 s, after 101 tokens", PLAIN[1])),
        (line(end="stalled", status=499), ("the client stopped reading and was cut after 2.1 s", PLAIN[1])),
        (line(end="lost"), ("the answer of gpu01 broke off after 2.1 s and 101 tokens", PLAIN[1])),
    ],
)  # fmt: skip
def test_a_request_is_told_in_the_order_in_which_it_happened(told: RequestLine, expected: tuple[str, ...]) -> None:
    assert sentences(told) == expected


def test_the_headline_is_what_was_remarkable_and_nothing_where_nothing_was() -> None:
    assert headline(SERVED) == ""
    assert headline(line(waited_ms=1800.0, band="bronze")) == "waited 1.8 s in band bronze"
    assert headline(line(end="lost")).startswith("the answer of gpu01 broke off")


def test_phases_are_the_whole_time_without_gap_or_overlap() -> None:
    told = line(
        waited_ms=20.0, attempts=(Tried(replica="r1", failed="x", at_ms=20.0, duration_ms=30.0), FAILED_FIRST[1])
    )
    found = phases(told)
    assert [phase.name for phase in found] == ["waited", "try 1 failed", "first token", "streaming"]
    assert (found[0].from_ms, found[-1].to_ms) == (0.0, told.duration_ms)
    assert all(one.to_ms == other.from_ms for one, other in itertools.pairwise(found))
    assert [phase.name for phase in phases(line(first_token_ms=None, end="failed", status=502))] == ["no answer"]


@pytest.mark.parametrize(
    ("ms", "text"), [(0.04, "0.0 ms"), (41.0, "41 ms"), (999.6, "1.0 s"), (1800.0, "1.8 s"), (125_000.0, "2 min 5 s")]
)
def test_lengths_read_as_people_say_them(ms: float, text: str) -> None:
    assert length(ms) == text
