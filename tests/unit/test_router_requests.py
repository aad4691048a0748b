"""What the router reads of a body is what the engine reads; a splice changes one value and no other byte."""

import json

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.routing import RoutedModel
from llmgw.router.big_bodies import BigBodies
from llmgw.router.limits import BIG_BODY_BYTES
from llmgw.router.ports import Refusal
from llmgw.router.requests import (
    asks_usage,
    check_max_output,
    locate,
    read_fields,
    with_model,
    with_usage,
)
from llmgw.router.routes import Route

CHAT: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet=st.sampled_from('amodel"\\{}[]:, é'), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "stream", "n", "x", '"model"', "stream_options"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, dict[str, object]]:
    """A chat body with fields that look like ours in every depth, in any order and spacing."""
    fields: dict[str, object] = dict(CHAT)
    fields["stream"] = True
    fields["tools"] = draw(JSON)
    fields["é\n"] = draw(JSON)
    if draw(st.booleans()):
        options = draw(st.sampled_from([None, {}, {"include_usage": False}, {"a": [{"}": '{"'}], "b": "\\"}]))
        fields["stream_options"] = options
    order = draw(st.permutations(list(fields)))
    shuffled = {name: fields[name] for name in order}
    spaces = draw(st.sampled_from([(",", ":"), (" , ", " : "), (",\n\t", ":  ")]))
    text = json.dumps(shuffled, ensure_ascii=draw(st.booleans()), separators=spaces)
    return draw(st.sampled_from(["", " \n"])).encode() + text.encode(), shuffled


@settings(max_examples=200, deadline=None)
@given(bodies(), st.sampled_from(["engine/model", 'odd"name\\é', "m"]))
def test_splices_change_one_value(body: tuple[bytes, dict[str, object]], name: str) -> None:
    raw, fields = body
    read = read_fields(raw, Route.CHAT)
    assert read.model == "m"
    assert read.streamed
    renamed = with_model(raw, name)
    assert json.loads(renamed) == fields | {"model": name}
    before = raw.index(b'"m"', locate(raw)["model"][0])
    assert renamed[:before] == raw[:before]
    assert renamed.endswith(raw[before + 3 :])
    options = fields.get("stream_options")
    asked = with_usage(renamed, read_fields(renamed, Route.CHAT))
    assert json.loads(asked) == fields | {
        "model": name,
        "stream_options": (options if isinstance(options, dict) else {}) | {"include_usage": True},
    }
    assert asks_usage(read_fields(asked, Route.CHAT))


@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","model":"other","messages":[1]}',
        b'{"model":"m","messages":[1],"mod\\u0065l":"other"}',
        b'{"\\u006dodel":"m","messages":[1],"model" :"other"}',
        b'{"stream":true,"model":"m","messages":[1],"stream":false}',
        b'{"max_tokens":1,"model":"m","messages":[1],"max_tokens":900}',
        b'{"model":"m","messages":[1],"stream":true,"stream_options":{},"stream_options":{"include_usage":true}}',
    ],
)
def test_a_field_that_comes_twice_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="twice") as caught:
        read_fields(body, Route.CHAT)
    assert caught.value.status == 400


def test_names_of_ours_elsewhere_are_no_duplicates() -> None:
    body = json.dumps(
        CHAT | {"tools": [{"model": {"model": 1}, "n": 1, "stream": True}], "n": 2, "x": '"model":"y"'}
    ).encode()
    read = read_fields(body, Route.CHAT)
    assert (read.model, read.n) == ("m", 2)
    assert json.loads(with_model(body, "z"))["model"] == "z"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"model":"m","messages":[1]} trailing', None),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":null}', "messages"),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"messages":[1]}', "model"),
        (b'{"model":null,"messages":[1]}', "model"),
        (b'{"model":7,"messages":[1]}', "model"),
        (b'{"model":"m","messages":[1],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[1],"n":16384}', "n"),
        (b'{"model":"m","messages":[1],"n":0}', "n"),
        (b'{"model":"m","messages":[1],"max_tokens":-1}', "max_tokens"),
        (b'{"model":"m","messages":[1],"max_tokens":1e12}', "max_tokens"),
        (b'{"model":"m","messages":[1],"max_tokens":1000000000000}', "max_tokens"),
        (b'{"model":"m","messages":[1],"max_tokens":NaN}', None),
        (b'{"model":"m","messages":[1],"max_completion_tokens":1e999}', None),
        (b'{"model":"m","messages":["\xff"]}', None),
        (b'{"model":"m","messages":' + b"[" * 100_000, None),
        (b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    ],
)
@pytest.mark.promise("A18")
def test_bad_bodies_are_told_where(body: bytes, param: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        read_fields(body, Route.CHAT)
    assert caught.value.status == 400
    if param is not None:
        assert caught.value.param == param


@pytest.mark.parametrize("options", [b"5", b'"x"', b"[]", b'{"a":"' + b"x" * 5000 + b'"}'])
def test_odd_stream_options_are_refused(options: bytes) -> None:
    body = b'{"model":"m","messages":[1],"stream":true,"stream_options":' + options + b"}"
    with pytest.raises(Refusal) as caught:
        asks_usage(read_fields(body, Route.CHAT))
    assert caught.value.param == "stream_options"


def test_more_tokens_than_the_model_gives_are_refused() -> None:
    model = RoutedModel(name="m", context_length=4096, max_output=1024)
    read = read_fields(json.dumps(CHAT | {"max_tokens": 1025}).encode(), Route.CHAT)
    with pytest.raises(Refusal, match="1025") as caught:
        check_max_output(read, model)
    assert (caught.value.status, caught.value.param) == (400, "max_tokens")
    check_max_output(read_fields(json.dumps(CHAT | {"max_tokens": 1024}).encode(), Route.CHAT), model)
    check_max_output(read, RoutedModel(name="unbounded"))


def test_a_body_of_strings_without_end_is_bounded() -> None:
    body = b'{"model":"m","messages":[' + b'"",' * 300_000 + b'"\\u0041"]}'
    with pytest.raises(Refusal, match="strings"):
        read_fields(body, Route.CHAT)


@pytest.mark.trio
async def test_a_long_body_is_read_beside_other_work_and_its_refusal_arrives() -> None:
    bodies, turns, done = BigBodies(), 0, False
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"word " * BIG_BODY_BYTES + b'"}]}'

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        fields = await bodies.call(body, read_fields, body, Route.CHAT)
        during = turns
        with pytest.raises(Refusal, match="not valid JSON"):
            await bodies.call(body, read_fields, body[:-1], Route.CHAT)
        done = True
    assert fields.model == "m"
    assert during > 0
