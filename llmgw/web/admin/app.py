"""The admin app put together. Read from top to bottom it is the list of everything the API serves."""

from quart_trio import QuartTrio

from llmgw.web.access import Access
from llmgw.web.admin import (
    audit,
    bands,
    cluster,
    engines,
    keys,
    logs,
    models,
    nodes,
    replicas,
    requests,
    scopes,
    series,
    settings,
    usage,
    watch,
    weights,
)
from llmgw.web.admin.routes import Routes
from llmgw.web.app import new_app
from llmgw.web.ports import ControlPlane

ROUTES = "llmgw.routes"
"""Key of the app's `Routes` in its extensions."""


def admin_app(control: ControlPlane, access: Access) -> QuartTrio:
    """The app for `admin.sock` and loopback TCP; serve it with `llmgw.web.serve.serve`."""
    app = new_app("llmgw.admin")
    routes = Routes(app, control, access)
    groups = (
        *(cluster, nodes, engines, models, replicas, keys, scopes, bands, usage),
        *(logs, requests, settings, audit, weights, watch, series),
    )
    for group in groups:
        group.register(routes)
    app.extensions[ROUTES] = routes
    return app
