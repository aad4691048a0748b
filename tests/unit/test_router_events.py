"""Events pass through unchanged however the reads fall, and only the usage-only one may be missing."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.events import EventStream
from llmgw.router.limits import MAX_EVENT_BYTES
from llmgw.router.token_usage import usage_from
from tests.support.scripted_engine import DONE, token, usage_event

USAGE = usage_event(7, 3, cached=2)
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def relayed(parts: list[bytes], *, withhold: bool = True) -> tuple[bytes, EventStream]:
    """What a client gets of a stream read in these parts, its proper end included."""
    events = EventStream(withhold=withhold)
    out = b"".join(events.feed(part) for part in parts)
    return out + events.finish(), events


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` in pieces that end at the given offsets."""
    edges = [0, *sorted(set(at)), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a != b]


@st.composite
def legal_events(draw: st.DrawFn) -> bytes:
    """One event as the standard allows it: any line end, comments, many data lines, fields without a colon."""
    end = draw(LINE_ENDS)
    text = draw(st.text(alphabet=st.sampled_from('aé🙂読\\":{}[] '), max_size=8))
    plain = token(text).removesuffix(b"\n\n")
    lines = draw(
        st.sampled_from(
            [
                [plain],
                [b": keep-alive"],
                [b"event: message", plain],
                [b"data", plain.replace(b"data: ", b"data:")],
                [b'data: {"choices":[{"delta":', b'data: {"content":"two lines"}}]}'],
                [b"id: 7", b"retry", plain],
                [],
            ]
        )
    )
    return b"".join(line + end for line in lines) + end


@st.composite
def legal_streams(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A whole stream, and the same without the usage-only event."""
    bom = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    events = draw(st.lists(legal_events(), max_size=8))
    usage = USAGE
    if draw(st.booleans()):
        usage = USAGE.removesuffix(b"\n\n") + draw(st.sampled_from([b"\r\n\r\n", b"\r\r", b"\n\r\n"]))
    after = draw(st.sampled_from([b"", b": bye\n\n"]))
    head = bom + b"".join(events)
    return head + usage + DONE + after, head + DONE + after


@pytest.mark.case("C1")
@settings(max_examples=300, deadline=None)
@given(legal_streams(), st.lists(st.integers(0, 2000), max_size=12))
def test_only_the_usage_event_is_missing(stream: tuple[bytes, bytes], at: list[int]) -> None:
    sent, wanted = stream
    got, events = relayed(cut(sent, [i % len(sent) for i in at]))
    assert got == wanted
    assert events.done
    assert events.usage is not None
    assert (events.usage.input_tokens, events.usage.cached_tokens, events.usage.output_tokens) == (7, 2, 3)


@pytest.mark.case("C1")
@settings(max_examples=150, deadline=None)
@given(legal_streams(), st.lists(st.integers(0, 2000), max_size=12))
def test_without_withholding_every_byte_passes(stream: tuple[bytes, bytes], at: list[int]) -> None:
    sent, _ = stream
    got, events = relayed(cut(sent, [i % len(sent) for i in at]), withhold=False)
    assert got == sent
    assert events.usage is not None


@pytest.mark.case("C1")
def test_every_single_cut_and_byte_by_byte() -> None:
    sent = token("読写é🙂") + token("b") + token("", finish="stop") + USAGE + DONE
    wanted = sent.replace(USAGE, b"")
    for at in range(len(sent)):
        got, events = relayed(cut(sent, [at]))
        assert got == wanted
        assert events.events == 2
    got, events = relayed([bytes([byte]) for byte in sent])
    assert got == wanted
    assert events.events == 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30), st.lists(st.integers(0, 5000), max_size=10))
def test_tokens_are_counted_whatever_the_reads(words: list[str], at: list[int]) -> None:
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    sent = role + b"".join(token(word) for word in words) + token("", finish="stop") + DONE
    _, events = relayed(cut(sent, [i % len(sent) for i in at]))
    assert events.events == len(words)
    assert events.usage is None


def test_an_engine_that_repeats_null_usage_costs_no_event() -> None:
    def chunk_of(text: str) -> bytes:
        return token(text).replace(b'{"id"', b'{"usage":null,"id"')

    parts = [chunk_of("a"), chunk_of("b") + chunk_of("c"), chunk_of("d"), USAGE + DONE]
    got, events = relayed(parts)
    assert got == b"".join(parts).replace(USAGE, b"")
    assert events.events == 4


def test_done_is_added_when_the_engine_forgot_it() -> None:
    assert relayed([token("a")])[0] == token("a") + DONE
    assert relayed([b""])[0] == DONE
    assert relayed([token("a") + b"data: [DONE]"])[0] == token("a") + b"data: [DONE]\n\n"
    assert relayed([token("a"), b": half a comm"])[0] == token("a") + b": half a comm\n\n" + DONE


def test_done_within_a_text_is_text() -> None:
    sent = token("[DONE]") + token("x") + DONE
    got, events = relayed([sent])
    assert got == sent
    assert events.events == 2


def test_comments_do_not_wait() -> None:
    events = EventStream(withhold=True)
    assert events.feed(b": working\n") == b": working\n"
    assert events.feed(b": wor") == b""
    assert events.feed(b"king\n\n") == b": working\n\n"
    assert events.events == 0


def test_an_endless_event_is_passed_on_in_pieces_and_memory_stays_bounded() -> None:
    events = EventStream(withhold=True)
    piece = b"x" * 50_000
    sent, got = b"data: ", events.feed(b"data: ")
    for _ in range(20):
        sent += piece
        got += events.feed(piece)
        assert len(sent) - len(got) <= MAX_EVENT_BYTES
    assert events.loose
    sent += b"\n\n" + token("a") + USAGE + DONE
    got += events.feed(b"\n\n" + token("a") + USAGE + DONE) + events.finish()
    assert got == sent.replace(USAGE, b"")


def test_usage_in_an_event_with_choices_is_read_and_passed_on() -> None:
    document = json.loads(USAGE.removeprefix(b"data: "))
    document["choices"] = [{"delta": {"content": "x"}}]
    sent = b"data: " + json.dumps(document).encode() + b"\n\n" + DONE
    got, events = relayed([sent])
    assert got == sent
    assert events.usage is not None
    assert events.usage.output_tokens == 3


@pytest.mark.parametrize(
    ("claimed", "counted"),
    [
        ({"prompt_tokens": 5.0, "prompt_tokens_details": {"cached_tokens": 99}}, (5, 5, 0)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": "9"}}, (5, 0, 0)),
        ({"prompt_tokens": 0, "completion_tokens": 10**9}, (0, 0, 1_000_000_000)),
    ],
)
def test_claims_are_counts(claimed: dict[str, object], counted: tuple[int, int, int]) -> None:
    usage = usage_from(claimed)
    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == counted


@pytest.mark.parametrize(
    "claimed",
    [
        None,
        5,
        "x",
        [],
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": -5, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 10**18},
        {"prompt_tokens": "9", "completion_tokens": 1},
        {"prompt_tokens": 9, "completion_tokens": True},
        {"prompt_tokens": float("nan"), "completion_tokens": 1},
        {"prompt_tokens": 9, "completion_tokens": float("inf")},
    ],
)
def test_what_cannot_be_a_count_says_nothing(claimed: object) -> None:
    assert usage_from(claimed) is None


def test_a_usage_event_that_says_nothing_is_still_withheld() -> None:
    nothing = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":"x"}}\n\n'
    got, events = relayed([token("a") + nothing + DONE])
    assert got == token("a") + DONE
    assert events.usage is None
    got, events = relayed([token("a") + USAGE + nothing + DONE])
    assert events.usage is not None  # what was said before stays said


@pytest.mark.parametrize("end", [[DONE], []])
def test_an_error_at_the_end_is_seen_however_the_reads_fall(end: list[bytes]) -> None:
    fault = b'data: {"error":{"message":"out of memory"}}\n\n'
    for parts in ([token("a"), token("b"), fault], [token("a") + token("b") + fault], [fault]):
        _, events = relayed([*parts, *end])
        assert events.says_error
    _, events = relayed([token("a"), token('"error"'), *end])
    assert not events.says_error


def test_a_nesting_bomb_in_a_usage_event_is_only_text() -> None:
    sent = b'data: {"choices":[],"usage":{"a":' + b"[" * 50_000 + b"\n\n" + DONE
    got, events = relayed([sent])
    assert got == sent
    assert events.usage is None


def test_done_is_said_once_however_much_follows_it_in_one_read() -> None:
    after = b": the engine goes on talking\n\n" * 100
    whole = token("a") + DONE + after
    got, events = relayed([token("first"), token("b") * 40 + whole])
    assert events.done
    assert got.count(b"[DONE]") == 1
    assert got == token("first") + token("b") * 40 + whole


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b"\n\n\n"])
def test_blank_lines_more_than_needed_pass_and_hold_up_nothing(blank: bytes) -> None:
    sent = b": hello\n\n" + blank + token("a") + blank + token("b") + blank + DONE
    for at in range(1, len(sent)):
        assert relayed(cut(sent, [at]))[0] == sent
    assert relayed([b": hello\n\n" + blank, sent])[0] == b": hello\n\n" + blank + sent
