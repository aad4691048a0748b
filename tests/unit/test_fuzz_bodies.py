"""Request bodies as clients write them, and what a fuzzer makes of them: refused, or changed only where it is meant."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.fields import Fields
from llmgw.router.ports import Refusal
from llmgw.router.requests import asks_usage, read_fields, with_model, with_usage
from llmgw.router.routes import Route
from tests.support.corpora import corpus, mutations

BODIES = corpus("bodies")
MUTATIONS = 250
"""Of each file."""
NEW_NAME = 'engine/"model"\\é'
WORDS = (
    b'"model"',
    b'"model":"x",',
    b'"mod\\u0065l":"x",',
    b'"stream":false,',
    b'"stream_options":{"include_usage":true},',
    b'"stream_options":{"a":{"stream_options":1}},',
    b'"stream_options":null,',
    b'"x":"\\"}",',
    b'"":{},',
    b'{"model":{"n":[1]}},',
    b'"messages":[],',
    b'"prompt":"",',
    b'"input":0,',
    b'"n":1,',
    b'"max_tokens":1e3,',
    b"\\",
    b'\\"',
    b"\\u0000",
    b"\\ud83d",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"9" * 40,
    b"[" * 3000,
)
ROUTE_OF = {"completions": Route.COMPLETIONS, "embeddings": Route.EMBEDDINGS}


def route_of(name: str) -> Route:
    """The route that a file of the corpus is for."""
    return ROUTE_OF.get(name.partition("-")[0], Route.CHAT)


def fields_of(body: bytes, route: Route) -> Fields | None:
    """What the router reads of a body; none when it was refused; anything else fails the test."""
    try:
        fields = read_fields(body, route)
        asks_usage(fields)
    except Refusal as error:
        refusal = error
    else:
        return fields
    assert refusal.status == 400
    assert refusal.message
    return None


def document(body: bytes) -> dict[str, object]:
    """The whole body as another reader has it."""
    return dict(json.loads(body))


def check_splices(body: bytes, route: Route, fields: Fields) -> None:
    """Each splice decodes to the same document but for its change, and asks of the router the same."""
    said = document(body)
    assert said["model"] == fields.model
    renamed = with_model(body, NEW_NAME)
    assert document(renamed) == said | {"model": NEW_NAME}, body
    assert read_fields(renamed, route).model == NEW_NAME
    options = said.get("stream_options")
    wanted = said | {"stream_options": (options if isinstance(options, dict) else {}) | {"include_usage": True}}
    assert document(with_usage(body, fields)) == wanted, body
    both = with_usage(renamed, read_fields(renamed, route))
    assert document(both) == wanted | {"model": NEW_NAME}, body
    assert asks_usage(read_fields(both, route))


@pytest.mark.promise("A18")
@pytest.mark.parametrize("name", BODIES)
def test_each_body_is_read_or_refused_as_its_name_says(name: str) -> None:
    fields = fields_of(BODIES[name], route_of(name))
    assert (fields is None) == name.startswith("bad-")
    if fields is not None:
        assert fields.model == "m"
        check_splices(BODIES[name], route_of(name), fields)


@pytest.mark.promise("A18")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", BODIES)
def test_a_mutated_body_is_refused_or_changed_where_it_was_meant(name: str) -> None:
    for mutant in mutations(BODIES[name], WORDS, seed=name, count=MUTATIONS, seams=b"{,["):
        for route in Route:
            fields = fields_of(mutant, route)
            if fields is not None:
                check_splices(mutant, route, fields)


@pytest.mark.parametrize("route", Route)
@settings(max_examples=150, deadline=None)
@given(body=st.lists(st.binary(max_size=12) | st.sampled_from(WORDS), max_size=20).map(b"".join))
def test_bytes_of_any_kind_are_read_or_refused(route: Route, body: bytes) -> None:
    for whole in (body, b'{"model":"m","messages":[1],"prompt":[1],"input":[1],' + body + b"}"):
        fields = fields_of(whole, route)
        if fields is not None:
            check_splices(whole, route, fields)
