"""What clients send by mistake is answered in the API's own shape, with what is wrong, where, and what would do."""

import gzip
import json

import pytest

from llmgw.router.routes import Route
from tests.integration.test_router_routes import BODIES, form
from tests.support.router_plane import Answer, chat, get, post, running
from tests.support.scripted_engine import answering, json_answer

pytestmark = pytest.mark.trio

JSON_ROUTES = BODIES | {Route.CHAT: chat()}
USED = json_answer({"usage": {"prompt_tokens": 1, "completion_tokens": 1}})


async def asked(request: bytes) -> tuple[Answer, int]:
    """The answer to a request, and how many requests reached the engine."""
    async with running(answering(USED)) as plane:
        answer = await plane.ask(request)
        return answer, len(plane.engines[0].received)


def refusal(answer: Answer, route: Route | None = None) -> tuple[str, object]:
    """Sentence and field of an error in the shape of the route's API."""
    assert answer.headers["content-type"] == "application/json"
    if route in (Route.MESSAGES, Route.COUNT_TOKENS):
        document = json.loads(answer.body)
        assert (document["type"], set(document["error"])) == ("error", {"type", "message"})
        return document["error"]["message"], None
    return str(answer.error["message"]), answer.error["param"]


def _with(body: bytes, more: bytes) -> bytes:
    return body[:-1] + b"," + more + b"}"


@pytest.mark.parametrize("route", JSON_ROUTES, ids=lambda route: route.path)
async def test_a_body_that_is_no_json_is_told_what_it_is_instead(route: Route) -> None:
    body = json.dumps(JSON_ROUTES[route]).encode()
    cases = [
        (b"", f"The body is empty: {route.path} takes a JSON object."),
        (b" \r\n", f"The body is empty: {route.path} takes a JSON object."),
        (b"\xef\xbb\xbf" + body, "byte order mark"),
        (body.decode().encode("utf-16"), "UTF-16"),
        (body.decode().encode("utf-16-be"), "UTF-16"),
        (gzip.compress(body), "without a Content-Encoding"),
        (b"model=m&prompt=x", f"is a form, and not of a kind that is taken: {route.path} takes"),
        (b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n', f"{route.path} takes"),
        (body[:-2], "it ends too early"),
        (body + b"\x00", "trailing characters"),
        (_with(body, b'"x":"a\x00b"'), "not valid JSON"),
        (_with(body, b'"x":"\xe9"'), "not UTF-8 at byte"),
        (_with(body, b'"x":NaN'), "not valid JSON"),
        (_with(body, b'"x":' + b"[" * 9000 + b"]" * 9000), "nested too deeply"),
        (b"[" + body + b"]", "The body must be a JSON object, not an array."),
        (b"null", "The body must be a JSON object, not null."),
    ]
    async with running(answering(USED)) as plane:
        for sent, said in cases:
            answer = await plane.ask(post(sent, route.path))
            assert answer.status == 400, sent
            assert said in refusal(answer, route)[0], sent
        assert plane.engines[0].received == []


@pytest.mark.parametrize("route", JSON_ROUTES, ids=lambda route: route.path)
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("stream", b'"true"', "stream must be true or false, not a string."),
        ("stream", b"1", "stream must be true or false, not a whole number."),
        ("n", b"1.5", "n must be a whole number, not a number with a fraction or an exponent."),
        ("n", b"0", "n must be between 1 and 128, not 0."),
        ("n", b"1e999", "n must be between 1 and 128."),
        ("max_tokens", b"5.0", "max_tokens must be a whole number, not a number with a fraction or an exponent."),
        ("max_tokens", b'"5"', "max_tokens must be a whole number, not a string."),
        ("max_tokens", b"-1", "max_tokens must be between 0 and 100000000, not -1."),
        ("max_tokens", b"9" * 5000, "max_tokens must be between 0 and 100000000."),
        ("model", b'""', "you must provide a model parameter"),
        ("model", b'["m"]', "model must be a string, not an array."),
    ],
)
async def test_a_field_that_cannot_be_is_named_with_what_would_do(
    route: Route, field: str, value: bytes, said: str
) -> None:
    body = {name: its for name, its in JSON_ROUTES[route].items() if name != field}
    answer, reached = await asked(
        post(_with(json.dumps(body).encode(), b'"%b":%b' % (field.encode(), value)), route.path)
    )
    sentence, param = refusal(answer, route)
    assert (answer.status, sentence, reached) == (400, said, 0)
    assert param in (field, None)


@pytest.mark.parametrize("name", ["é", "模型", "../m", "m ", "M", "m\x00", "%6d", "m" * 5000])
async def test_a_name_that_is_no_models_is_said_back_and_no_longer_than_need_be(name: str) -> None:
    answer, reached = await asked(post(chat(model=name)))
    assert (answer.status, answer.error["code"], reached) == (404, "model_not_found", 0)
    assert f"The model {name[:140]!r} does not exist" in str(answer.error["message"])


async def test_a_path_that_ends_where_a_models_name_begins_says_where_they_are_listed() -> None:
    answer, _ = await asked(get("/v1/models/"))
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "GET /v1/models lists them" in str(answer.error["message"])


@pytest.mark.parametrize(
    ("parts", "said", "param"),
    [
        ((("model", b"m"), ("model", b"m")), "comes twice", "model"),
        ((("model", b"m" * 5000),), "longer than 4096 bytes", "model"),
        ((("model", b"m"), ('n"; filename="x', b"1")), "must be a plain one: no file", "n"),
        ((("model", b""),), "you must provide a model parameter", "model"),
        ((("model", b"m"), ("n", b"")), "n must be a whole number", "n"),
    ],
)
async def test_a_forms_field_that_cannot_be_is_named(
    parts: tuple[tuple[str, bytes], ...], said: str, param: str
) -> None:
    answer, reached = await asked(form(Route.TRANSCRIPTIONS, *parts, ("file", b"RIFF")))
    assert (answer.status, reached) == (400, 0)
    assert said in str(answer.error["message"])
    assert answer.error["param"] == param


async def test_a_form_with_bare_line_feeds_or_another_boundary_is_told_so() -> None:
    whole = form(Route.TRANSCRIPTIONS, ("model", b"m"), ("file", b"RIFF"))
    head, _, body = whole.partition(b"\r\n\r\n")
    bare = body.replace(b"\r\n", b"\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    sent = b"\r\n".join([*lines, b"Content-Length: %d" % len(bare), b"", bare])
    assert "end of its line (CR LF)" in str((await asked(sent))[0].error["message"])
    other = whole.replace(b"boundary=b0", b"boundary=zz")
    assert "the boundary that its Content-Type names" in str((await asked(other))[0].error["message"])


@pytest.mark.parametrize(("status", "name"), [(201, b"Created"), (409, b"Conflict"), (422, b"Unprocessable Content")])
async def test_a_status_of_an_engines_has_its_own_name(status: int, name: bytes) -> None:
    fault = {"error": {"message": "no", "type": "x", "param": None, "code": "y"}}
    async with running(answering(json_answer(fault, b"%d Odd" % status))) as plane:
        answer = await plane.ask(post(chat()))
    assert answer.raw.split(b"\r\n")[0] == b"HTTP/1.1 %d %b" % (status, name)


@pytest.mark.parametrize(
    ("raw", "methods"),
    [
        (get("/v1/chat/completions"), "POST"),
        (post(b"{}", "/v1/models"), "GET, HEAD"),
        (post(b"{}", "/v1/models/m"), "GET, HEAD"),
        (post(b"{}", "/live"), "GET, HEAD"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(raw: bytes, methods: str) -> None:
    answer, _ = await asked(raw)
    assert (answer.status, answer.headers["allow"]) == (405, methods)
    assert f"this path takes {methods}" in str(answer.error["message"])


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/models/", "/v1/models"),
    ],
)
async def test_a_path_that_is_nearly_a_route_is_told_the_route(path: str, meant: str) -> None:
    answer, _ = await asked(post(chat(), path))
    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
    assert str(answer.error["message"]).endswith(f"there is {meant}")


async def test_a_path_that_is_no_ascii_is_told_how_to_write_it() -> None:
    answer, _ = await asked(
        "GET /v1/models/caf\N{LATIN SMALL LETTER E WITH ACUTE} HTTP/1.1\r\nHost: g\r\n\r\n".encode()
    )
    assert (answer.status, answer.error["code"]) == (400, "bad_request")
    assert "percent-encoded" in str(answer.error["message"])
