"""The views there are. A view exists when it has a line here: its tab, its digit and its `:` word follow from it."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from console.actions.handler import permission_of
from llmgw.api.actions import action

if TYPE_CHECKING:
    from console.screens.view import View


@dataclass(frozen=True, kw_only=True)
class ViewSpec:
    """One view or page."""

    name: str
    """Its `:` word, and its name in a `Place`."""
    title: str
    load: str
    """`module:Class`, imported when it is first shown."""
    digit: str = ""
    """Its key among the tabs; a page that is opened from others has none."""
    needs: str = ""
    """Action whose permission it takes; without it the view is absent."""

    def view_class(self) -> "type[View]":
        """Its class."""
        module, _, name = self.load.partition(":")
        return cast("type[View]", getattr(import_module(module), name))


VIEWS: tuple[ViewSpec, ...] = (
    ViewSpec(name="overview", title="Overview", digit="1", load="console.screens.overview:Overview"),
    ViewSpec(name="models", title="Models", digit="2", load="console.screens.models:Models"),
    ViewSpec(name="replicas", title="Replicas", digit="3", load="console.screens.replicas:Replicas"),
    ViewSpec(name="nodes", title="Nodes", digit="4", load="console.screens.nodes:Nodes"),
    ViewSpec(name="gpus", title="GPUs", digit="5", load="console.screens.gpus:Gpus"),
    ViewSpec(name="monitor", title="Monitor", digit="6", load="console.screens.monitor:Monitor"),
    ViewSpec(name="weights", title="Weights", digit="7", load="console.screens.weights:Weights"),
    ViewSpec(name="keys", title="Keys", digit="8", load="console.screens.keyview:Keys", needs="key.list"),
    ViewSpec(name="audit", title="Audit", digit="0", load="console.screens.audit:Audit", needs="audit.list"),
    ViewSpec(name="change", title="Change", load="console.screens.change:ChangePage"),
    ViewSpec(name="model", title="Model", load="console.screens.model:ModelPage"),
    ViewSpec(name="replica", title="Replica", load="console.screens.replica:ReplicaPage"),
    ViewSpec(name="node", title="Node", load="console.screens.node:NodePage"),
    ViewSpec(name="key", title="Key", load="console.screens.scope_page:ScopePage", needs="key.list"),
    ViewSpec(name="team", title="Team", load="console.screens.scope_page:ScopePage", needs="team.list"),
    ViewSpec(name="tenant", title="Tenant", load="console.screens.scope_page:ScopePage", needs="tenant.list"),
    ViewSpec(name="usage", title="Usage", load="console.screens.usage:Usage", needs="usage.list"),
    ViewSpec(name="charts", title="Monitor", load="console.screens.monitor:Monitor"),
    ViewSpec(name="requests", title="Requests", load="console.screens.requests:Requests", needs="request.list"),
    ViewSpec(name="request", title="Request", load="console.screens.request:RequestPage", needs="request.show"),
    ViewSpec(name="explain", title="Explain", load="console.screens.explain:ExplainPage"),
    ViewSpec(name="logs", title="Logs", load="console.screens.logs:LogsPage"),
    ViewSpec(name="try", title="Try", load="console.screens.playground:Playground"),
    ViewSpec(name="ctx", title="Clusters", load="console.screens.clusters:Clusters"),
    ViewSpec(name="yaml", title="YAML", load="console.screens.yamlpage:YamlPage"),
)
TABS: tuple[ViewSpec, ...] = tuple(
    sorted((view for view in VIEWS if view.digit), key=lambda view: "1234567890".index(view.digit))
)
_BY_NAME = {view.name: view for view in VIEWS}


def open_to(view: ViewSpec, role: str) -> bool:
    """Whether someone of `role` may see it."""
    return not view.needs or permission_of(role) >= action(view.needs).permission


def tabs_for(role: str) -> tuple[ViewSpec, ...]:
    """The tabs of someone of `role`."""
    return tuple(view for view in TABS if open_to(view, role))


def view_named(name: str) -> ViewSpec | None:
    """The view of that name."""
    return _BY_NAME.get(name)
