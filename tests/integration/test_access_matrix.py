"""Every route against every caller, made from the routes there are: what one may not have is not told from what is not.

A route that is added is in the matrix, or this file fails and says that it is not.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest

from llmgw.api.actions import ACTIONS, Action, Permission
from llmgw.api.paths import fill, parameters
from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Routing
from llmgw.router.passthrough import PREFIXES
from llmgw.router.routes import ROUTES, Forms, Route
from llmgw.web.access import Access
from llmgw.web.admin import admin_app
from llmgw.web.admin.app import ROUTES as APP_ROUTES
from llmgw.web.public import public_app
from tests.integration.test_admin_access import BODIES
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import FakeControl
from tests.support.router_plane import KEY, LIMITED_KEY, Answer, Plane, get, post
from tests.support.router_plane import running as running_plane
from tests.support.scripted_engine import answering, json_answer

OPEN = {"metrics": None, "openapi": Permission.VIEWER}
"""Routes of the admin app that are no action, and whose they are."""
CLIENTS_OWN = ("/live", "/ready", "/v1/models", "/v1/models/m")
CALLERS: dict[str, str | None] = {
    "nobody": None,
    "a wrong token": "unknown-token-000000",
    "a client's key": KEY.decode(),
    **TOKENS,
}
"""Bearer tokens of who might ask the admin app."""


# -- the admin app


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("matrix")) as server:
        yield server


def call(server: Running, action: Action, token: str | None, name: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers but the date, and body; of an endless answer the first line."""
    path = fill(action.path, dict.fromkeys(parameters(action.path), name))
    body = json.dumps(BODIES[action.id]).encode() if action.id in BODIES else None
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(action.method, path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.readline() if action.stream and answer.status == 200 else answer.read()
        return answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() != "date"], content
    finally:
        connection.close()


def test_the_matrix_holds_every_route_of_both_apps() -> None:
    control = FakeControl()
    app = admin_app(control, Access())
    endpoints = {rule.endpoint for rule in app.url_map.iter_rules()}
    assert endpoints == {action.id for action in ACTIONS} | OPEN.keys()
    permissions = app.extensions[APP_ROUTES].permissions
    assert permissions == {action.id: action.permission for action in ACTIONS} | OPEN
    assert {rule.rule for rule in public_app(control).url_map.iter_rules()} == {"/leader"}
    assert {action.id for action in ACTIONS if action.request is not None} <= BODIES.keys()


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_whoever_may_not_learns_nothing_of_what_is_there(admin: Running, action: Action) -> None:
    """What there is ("gpu0", the key, the model) and what there is not are answered with the same bytes."""
    for caller, token in CALLERS.items():
        allowed = caller in TOKENS and permission(caller) >= action.permission
        if allowed:
            continue
        answers = {str(call(admin, action, token, name)) for name in ("gpu0", "m", "k1", "no-such-thing")}
        assert len(answers) == 1, (caller, answers)
        status = call(admin, action, token, "gpu0")[0]
        assert status == (403 if caller in TOKENS else 401), caller


def permission(role: str) -> Permission:
    return Permission[role.upper()]


def places(type_: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where objects with fields stand in a body, as paths of field names."""
    info = msgspec.inspect.type_info(type_)
    yield from _places(info, path)


def _places(info: msgspec.inspect.Type, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(info, msgspec.inspect.StructType):
        yield path
        for field in info.fields:
            yield from _places(field.type, (*path, field.encode_name))
    elif isinstance(info, msgspec.inspect.UnionType):
        for option in info.types:
            if isinstance(option, msgspec.inspect.StructType):
                yield from _places(option, path)
    elif isinstance(info, msgspec.inspect.VarTupleType):
        yield from _places(info.item_type, (*path, "[]"))


MINIMAL: dict[str, dict[str, object]] = {
    "External": {"base_url": "https://provider.example/v1"},
    "Profile": {"name": "p", "engine": "sim"},
    "Budget": {"amount_micros": 1, "period": "day"},
}
"""Of types with required fields."""


def with_strange_field(document: Any, type_: Any, path: tuple[str, ...]) -> Any:
    """`document` with a field nobody knows in the object at `path`, made where it is not there."""
    info = msgspec.inspect.type_info(type_)
    return _strange(document, info, path)


def _struct_of(info: msgspec.inspect.Type) -> msgspec.inspect.StructType:
    options = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    return next(option for option in options if isinstance(option, msgspec.inspect.StructType))


def _strange(document: Any, info: msgspec.inspect.Type, path: tuple[str, ...]) -> Any:
    if path[:1] == ("[]",):
        assert isinstance(info, msgspec.inspect.VarTupleType)
        item = MINIMAL.get(_struct_of(info.item_type).cls.__name__, {})
        return [_strange(dict(item), info.item_type, path[1:])]
    struct = _struct_of(info)
    made = dict(document if isinstance(document, dict) else MINIMAL.get(struct.cls.__name__, {}))
    if not path:
        return made | {"strange_field": 1}
    inner = next(field.type for field in struct.fields if field.encode_name == path[0])
    return made | {path[0]: _strange(made.get(path[0]), inner, path[1:])}


WRITTEN = [
    pytest.param(action, path, id=f"{action.id} {'.'.join(path) or 'body'}")
    for action in ACTIONS
    if action.request is not None
    for path in places(action.request)
]


@pytest.mark.parametrize(("action", "path"), WRITTEN)
def test_a_field_that_is_spelled_wrong_is_refused_wherever_it_stands(
    admin: Running, action: Action, path: tuple[str, ...]
) -> None:
    body = with_strange_field(BODIES[action.id], action.request, path)
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    connection.request(
        action.method,
        fill(action.path, dict.fromkeys(parameters(action.path), "m")),
        body=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKENS['admin']}"},
    )
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    assert (answer.status, told["code"]) == (400, "invalid")
    assert "unknown field `strange_field`" in told["message"]


# -- the client port


MINE = RoutedModel(name="mine", aliases=("ours",), context_length=4096)
THEIRS = RoutedModel(name="their-secret-model", aliases=("their-alias",), context_length=4096, fallbacks=("mine",))
FORM = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'
FIELDS: dict[str, object] = {
    "messages": [],
    "prompt": "x",
    "input": "x",
    "query": "x",
    "documents": [],
    "max_tokens": 5,
}


def asking(route: Route, model: str, key: bytes) -> bytes:
    """A request on any route."""
    if route.forms is Forms.ALWAYS:
        body = post(FORM % model.encode(), route.path, key=key)
        return body.replace(b"application/json", b"multipart/form-data; boundary=x")
    return post({"model": model, **FIELDS}, route.path, key=key)


def same(answer: Answer, name: str) -> tuple[object, ...]:
    """An answer without what differs between any two of them, and without the name that was asked for."""
    headers = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "content-length")}
    return answer.status, headers, answer.body.replace(name.encode(), b"NAME")


async def prepare(plane: Plane) -> None:
    replicas = tuple(
        RoutedReplica(id=f"r-{model.name}", model=model.name, endpoint=plane.engines[0].endpoint)
        for model in (MINE, THEIRS)
    )
    plane.state.apply(Routing(revision="1/1", models=(MINE, THEIRS), replicas=replicas))
    plane.state.key = KeyRecord(id="k", name="k", team="blue", models=("mine",))


@pytest.mark.trio
@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.path)
async def test_another_tenants_model_is_answered_as_one_that_is_not_there(route: Route) -> None:
    async with running_plane(answering(json_answer({}))) as plane:
        await prepare(plane)
        assert (await plane.ask(asking(route, "mine", KEY))).status == 200
        foreign = [("their-secret-model", KEY), ("their-alias", KEY), ("nobodys-model", KEY)]
        answers = [same(await plane.ask(asking(route, name, key)), name) for name, key in foreign]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0][0] == 404
        for key in (b"sk-nobodys-0123456789", b""):
            unknown = [
                same(await plane.ask(asking(route, name, key)), name)
                for name in ("mine", "their-alias", "nobodys-model")
            ]
            assert unknown[0] == unknown[1] == unknown[2]
            assert unknown[0][0] == 401
        assert [received.header(b"host") for received in plane.engines[0].received] == [
            f"127.0.0.1:{plane.engines[0].port}".encode()
        ], "one request reached an engine: the one for what is theirs who asked"


@pytest.mark.trio
async def test_lists_and_looks_hold_only_ones_own() -> None:
    async with running_plane(answering(json_answer({}))) as plane:
        await prepare(plane)
        listed = json.loads((await plane.ask(get("/v1/models"))).body)
        assert [model["id"] for model in listed["data"]] == ["mine"]
        for name in ("mine", "ours"):
            assert (await plane.ask(get(f"/v1/models/{name}"))).status == 200
        looks = [
            same(await plane.ask(get(f"/v1/models/{name}")), name)
            for name in ("their-secret-model", "their-alias", "nobodys-model", "other")
        ]
        assert looks[0][0] == 404
        assert all(look == looks[0] for look in looks)
        other = await plane.ask(get("/v1/models", key=LIMITED_KEY))
        assert json.loads(other.body)["data"] == []


@pytest.mark.trio
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
async def test_no_admin_route_is_behind_the_client_port(action: Action) -> None:
    path = fill(action.path, dict.fromkeys(parameters(action.path), "m"))
    assert not path.encode().startswith(PREFIXES)
    async with running_plane(answering(json_answer({}))) as plane:
        await prepare(plane)
        for key in (KEY, TOKENS["admin"].encode(), b""):
            request = post({}, path, key=key).replace(b"POST", action.method.encode(), 1)
            answer = await plane.ask(request)
            assert (answer.status, answer.error["code"]) == (404, "unknown_url")


def test_the_client_port_serves_no_route_that_is_not_named_here() -> None:
    """What it answers itself, relays to engines, or relays to the public app."""
    named = {*CLIENTS_OWN, *(path.decode() for path in ROUTES), *(prefix.decode() for prefix in PREFIXES)}
    assert named == {
        "/live", "/ready", "/v1/models", "/v1/models/m",
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
        "/v1/messages/count_tokens", "/v1/rerank", "/v1/audio/speech", "/v1/audio/transcriptions",
        "/v1/audio/translations", "/v1/images/generations", "/v1/images/edits",
        "/leader", "/portal", "/v1/files", "/v1/batches", "/mcp",
    }  # fmt: skip
