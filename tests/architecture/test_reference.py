"""Generated references are what the code says; `make reference` renews them."""

import json
from pathlib import Path

import pytest
from quart_trio import QuartTrio

from llmgw.api.actions import ACTIONS, Permission
from llmgw.api.paths import METRICS, OPENAPI
from llmgw.cli import ctl_reference, reference
from llmgw.web import openapi
from llmgw.web.access import Access
from llmgw.web.admin import admin_app
from llmgw.web.admin.app import ROUTES
from llmgw.web.admin.routes import Routes
from tests.support.fake_control import FakeControl

ROOT = Path(__file__).parents[2]


@pytest.fixture
def app() -> QuartTrio:
    return admin_app(FakeControl(), Access())


def test_the_configuration_reference_is_not_stale() -> None:
    assert (ROOT / reference.REFERENCE).read_text() == reference.config_reference(), "stale: run `make reference`"


def test_the_api_description_is_not_stale() -> None:
    assert (ROOT / openapi.REFERENCE).read_bytes() == openapi.openapi_json(), "stale: run `make reference`"


def test_every_route_has_a_permission_and_every_action_a_route(app: QuartTrio) -> None:
    routes = app.extensions[ROUTES]
    assert isinstance(routes, Routes)
    rules = {rule.endpoint: rule for rule in app.url_map.iter_rules()}
    assert set(rules) == set(routes.permissions)
    assert set(rules) == {action.id for action in ACTIONS} | {"metrics", "openapi"}
    for action in ACTIONS:
        assert routes.permissions[action.id] is action.permission
        assert action.method in (rules[action.id].methods or ())
    assert [endpoint for endpoint, permission in routes.permissions.items() if permission is None] == ["metrics"]
    assert routes.permissions["openapi"] is Permission.VIEWER


def test_the_description_covers_every_route() -> None:
    document = json.loads(openapi.openapi_json())
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(a.method, a.path) for a in ACTIONS} | {("GET", METRICS), ("GET", OPENAPI)}
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]


def test_every_field_of_the_description_that_has_a_sentence_carries_it() -> None:
    schemas = json.loads(openapi.openapi_json())["components"]["schemas"]
    assert schemas["ModelInfo"]["properties"]["message"]["description"].startswith("The one sentence")
    assert all("description" in schema for name, schema in schemas.items())


def test_the_ctl_page_is_current() -> None:
    assert (ROOT / ctl_reference.REFERENCE).read_text() == ctl_reference.ctl_reference(), "stale: run `make reference`"
