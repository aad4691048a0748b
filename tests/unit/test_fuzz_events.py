"""Streams as engines write them, and what a fuzzer makes of them: nothing is lost, added or read differently.

What a client may miss is the usage-only event the router itself asked for; what it may get beside the engine's bytes is
the end of a stream that the engine left without one.
"""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.events import DONE_EVENT, EventStream
from llmgw.router.limits import MAX_EVENT_BYTES, RECV_BYTES
from tests.support.corpora import corpus, mutations, pieces
from tests.support.scripted_engine import DONE, token, usage_event
from tests.support.sse_reader import read_events

STREAMS = corpus("sse")
MUTATIONS = 120
"""Of each file."""
SPLITS = 4
"""Of each mutation."""
WORDS = (
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"data: ",
    b"data",
    b":",
    b"\xef\xbb\xbf",
    b"[DONE]",
    DONE,
    b'"usage"',
    b'"usage":null',
    b'"usage":{',
    usage_event(7, 3),
    b'"choices":[]',
    b'"content":"x"',
    b": comment\n",
    b"event: ping\n",
    b"retry: 1\n\n",
    b"\x00",
)


def passed(parts: list[bytes], *, withhold: bool) -> tuple[bytes, EventStream]:
    """What goes to the client of a stream read in these parts, before its end is seen."""
    events = EventStream(withhold=withhold)
    return b"".join(events.feed(part) for part in parts), events


def whole(parts: list[bytes], *, withhold: bool) -> tuple[bytes, EventStream]:
    """The same with a proper end."""
    got, events = passed(parts, withhold=withhold)
    return got + events.finish(), events


def is_usage_only(data: bytes) -> bool:
    """Whether it is the event that a client who did not ask must not see."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not isinstance(document, dict) or not isinstance(document.get("usage"), dict):
        return False
    return not document.get("choices") and not document.get("error")


def ending(sent: bytes, got: bytes) -> bytes:
    """What was added to all that was sent."""
    assert got.startswith(sent)
    return got[len(sent) :]


@pytest.mark.case("C1")
@pytest.mark.parametrize("name", STREAMS)
def test_every_cut_of_every_stream_passes_byte_for_byte(name: str) -> None:
    sent = STREAMS[name]
    added = ending(sent, whole([sent], withhold=False)[0])
    assert added in (b"", b"\n\n", DONE_EVENT, b"\n\n" + DONE_EVENT)
    kept = whole([sent], withhold=True)[0]
    assert read_events(kept) == [e for e in read_events(sent + added) if not is_usage_only(e[1])]
    for at in range(len(sent)):
        cut = [sent[:at], sent[at:]]
        assert whole(cut, withhold=False)[0] == sent + added
        assert whole(cut, withhold=True)[0] == kept
    bytewise = [sent[i : i + 1] for i in range(len(sent))]
    assert whole(bytewise, withhold=False)[0] == sent + added
    assert whole(bytewise, withhold=True)[0] == kept


@pytest.mark.case("C1")
@pytest.mark.parametrize("name", [name for name in STREAMS if b'"usage":{' in STREAMS[name]])
def test_usage_is_found_however_it_is_cut(name: str) -> None:
    sent = STREAMS[name]
    chance = random.Random(name)
    found = set()
    for _ in range(60):
        _, events = whole(pieces(sent, chance), withhold=True)
        assert events.usage is not None
        found.add((events.usage.input_tokens, events.usage.output_tokens, events.done))
    assert len(found) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", STREAMS)
def test_whatever_an_engine_sends_arrives(name: str) -> None:
    chance = random.Random(name)
    for mutant in mutations(STREAMS[name], WORDS, seed=name, count=MUTATIONS):
        added = ending(mutant, whole([mutant], withhold=False)[0])
        assert added in (b"", b"\n\n", DONE_EVENT, b"\n\n" + DONE_EVENT)
        kept, _ = whole([mutant], withhold=True)
        before = read_events(mutant + added)
        left = iter(before)
        assert all(event in left for event in read_events(kept)), mutant
        for _ in range(SPLITS):
            parts = pieces(mutant, chance)
            assert whole(parts, withhold=False)[0] == mutant + added, mutant
            assert read_events(whole(parts, withhold=True)[0]) == read_events(kept), (mutant, parts)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_missing_is_usage_and_nothing_else(name: str) -> None:
    for mutant in mutations(STREAMS[name], WORDS, seed=f"{name} again", count=MUTATIONS):
        added = ending(mutant, whole([mutant], withhold=False)[0])
        kept = read_events(whole([mutant], withhold=True)[0])
        gone = list(read_events(mutant + added))
        for event in kept:
            gone.remove(event)
        assert all(is_usage_only(data) for _, data in gone), mutant


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES - 1, MAX_EVENT_BYTES, MAX_EVENT_BYTES + 5, 3 * MAX_EVENT_BYTES])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_huge_event_arrives_and_is_never_held_for_long(size: int, end: bytes) -> None:
    chance = random.Random(size)
    sent = token("a") + b"data: " + b"x" * size + end + end + token("b") + usage_event(7, 3) + DONE
    events, got, at = EventStream(withhold=True), b"", 0
    while at < len(sent):
        part = sent[at : at + chance.randint(1, RECV_BYTES)]
        at += len(part)
        got += events.feed(part)
        assert at - len(got) <= MAX_EVENT_BYTES + len(usage_event(7, 3))
    assert got + events.finish() == sent.replace(usage_event(7, 3), b"")
    assert events.usage is not None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from(WORDS), max_size=30), st.booleans())
def test_bytes_of_any_kind_pass(parts: list[bytes], withhold: bool) -> None:
    sent = b"".join(parts)
    got, _ = whole(parts, withhold=withhold)
    if not withhold:
        assert ending(sent, got) in (b"", b"\n\n", DONE_EVENT, b"\n\n" + DONE_EVENT)
    else:
        assert len(got) <= len(sent) + len(b"\n\n" + DONE_EVENT)


def test_the_reader_reads_as_the_standard_says() -> None:
    stream = b"\xef\xbb\xbfevent: a\r\ndata: 1\rdata:2\n\n:c\n\ndata\n\nid: 3\n\ndata: no end\n"
    assert read_events(stream) == [(b"a", b"1\n2"), (b"message", b"")]
    assert not read_events(b"data: half")
