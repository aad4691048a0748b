"""Which of the registry's actions the console offers, on what, and what each does. Labels and keys are the registry's.

A handler does one of three things: `do` calls the API in a thread and returns the sentence to show, `opens` names a
place to go to, `form` names a screen that asks for what is missing. Adding an action is adding a line to HANDLERS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.actions import consequences
from console.actions.engines import builds_packages, check_engines, has_build_log, install_log, real_node
from console.monitoring import place_of_subject
from console.places import Place, Subject
from console.state.cluster import ClusterState
from console.state.scopes import KINDS, find, scope
from llmgw.api.actions import Action, Permission, Target, action
from llmgw.core.limits import ScopeKind

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient

Keys = tuple[str, ...]


def _always(_: ClusterState, __: Subject) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Handler:
    """One action on the screen."""

    action_id: str
    variant: str = ""
    """Tells handlers of the same action apart."""
    name: str = ""
    """Label in place of the registry's."""
    help: str = ""
    """Line of help in place of the registry's."""
    bound: str | None = None
    """Key in place of the registry's; empty for none."""
    targets: tuple[Target, ...] = ()
    """What it can be about, the registry's target by default; the cluster needs nothing under the cursor."""
    views: tuple[str, ...] = ()
    """Views in which its key works, all by default; the palette has it everywhere."""
    when: Callable[[ClusterState, Subject], bool] = _always
    """Whether it makes sense for a subject as it is."""
    do: "Callable[[AdminClient, str], str] | None" = None
    """Called with the subject's key, in a thread; returns a sentence, raises ClientError."""
    opens: Callable[[ClusterState, Subject], Place | None] | None = None
    form: str = ""
    """`module:Class` of a screen taking (subjects, arguments)."""
    warn: Callable[[ClusterState, Keys], str] | None = None
    """What a dangerous one will do, in figures."""
    look: "Callable[[AdminClient, Keys], str] | None" = None
    """More of that, asked for in a thread while the question stands there."""
    typed: bool = True
    """Whether what cannot be undone is asked for by its name, and not by a choice."""
    footer: int = 0

    @property
    def action(self) -> Action:
        """The registry's entry."""
        return action(self.action_id)

    @property
    def id(self) -> str:
        """Unique among handlers."""
        return f"{self.action_id}.{self.variant}" if self.variant else self.action_id

    @property
    def label(self) -> str:
        """Words of the footer and the palette."""
        return self.name or self.action.label

    @property
    def key(self) -> str:
        """Its key, if it has one."""
        return self.action.key if self.bound is None else self.bound

    @property
    def about(self) -> tuple[Target, ...]:
        """What it can be about."""
        return self.targets or (self.action.target,)

    @property
    def changes(self) -> bool:
        """Whether it changes anything; in read-only mode it is then absent."""
        return self.action.method != "GET"


def _stopped(state: ClusterState, subject: Subject) -> bool:
    model = state.models.get(subject.key)
    return model is not None and model.spec.stopped and not model.declared


def _running(state: ClusterState, subject: Subject) -> bool:
    model = state.models.get(subject.key)
    return model is not None and not model.spec.stopped and not model.declared


def _runs_here(state: ClusterState, subject: Subject) -> bool:
    """Whether it has replicas at all: a model that is served outside the cluster has none."""
    model = state.models.get(subject.key)
    return model is not None and not model.spec.external


def _scalable(state: ClusterState, subject: Subject) -> bool:
    return _runs_here(state, subject) and _editable(state, subject)


def _restartable(state: ClusterState, subject: Subject) -> bool:
    return _runs_here(state, subject) and _running(state, subject)


def _editable(state: ClusterState, subject: Subject) -> bool:
    model = state.models.get(subject.key)
    return model is not None and not model.declared


def _cordoned(state: ClusterState, subject: Subject) -> bool:
    node = state.nodes.get(subject.key)
    return node is not None and node.state == "cordoned"


def _open_node(state: ClusterState, subject: Subject) -> bool:
    return subject.key in state.nodes and not _cordoned(state, subject)


def _good_key(state: ClusterState, subject: Subject) -> bool:
    key = state.keys.get(subject.key)
    return key is not None and key.revoked is None


def _known_scope(state: ClusterState, subject: Subject) -> bool:
    return scope(state, KINDS[subject.target], subject.key) is not None


def _nothing_beneath(state: ClusterState, subject: Subject) -> bool:
    """A team without living keys, a tenant without teams: nothing else is removed."""
    row = scope(state, KINDS[subject.target], subject.key)
    if row is None or subject.target == Target.TEAM:
        return row is not None and not row.keys
    return all(other.tenant != row.name for other in state.scopes.values())


def _failed_weights(state: ClusterState, subject: Subject) -> bool:
    row = state.weights.get(subject.key)
    return row is not None and row.state == "failed"


def _whole_weights(state: ClusterState, subject: Subject) -> bool:
    row = state.weights.get(subject.key)
    return row is not None and row.state == "ready" and not row.phase


def _orphan(state: ClusterState, subject: Subject) -> bool:
    row = state.weights.get(subject.key)
    return row is not None and not row.models


def _has_model(state: ClusterState, subject: Subject) -> bool:
    return _model_of(state, subject) is not None


def _answers(state: ClusterState, subject: Subject) -> bool:
    """Whether a request reaches it: one that makes pictures is asked nothing."""
    model = state.models.get(_model_of(state, subject) or "")
    return model is not None and not model.spec.pictures


def _model_of(state: ClusterState, subject: Subject) -> str | None:
    if subject.target == Target.MODEL:
        return subject.key
    replica = state.replicas.get(subject.key)
    return replica.model if replica and replica.model in state.models else None


def _explanation(state: ClusterState, subject: Subject) -> Place | None:
    model = _model_of(state, subject)
    return Place(view="explain", subject=Subject(target=Target.MODEL, key=model)) if model else None


def _trial(state: ClusterState, subject: Subject) -> Place | None:
    model = _model_of(state, subject)
    return Place(view="try", subject=Subject(target=Target.MODEL, key=model)) if model else None


def _log(state: ClusterState, subject: Subject) -> Place | None:
    if subject.target == Target.MODEL:
        replicas = state.replicas_of(subject.key)
        # What failed has the most to tell.
        chosen = next((replica for replica in replicas if replica.state == "failed"), replicas[0] if replicas else None)
        subject = Subject(target=Target.REPLICA, key=chosen.id) if chosen else subject
    return Place(view="logs", subject=subject) if subject.target != Target.MODEL else None


def _has_log(state: ClusterState, subject: Subject) -> bool:
    return _log(state, subject) is not None


def _usage(_: ClusterState, subject: Subject) -> Place:
    """`:usage team` begins with teams."""
    asked = subject.key if subject.target == Target.CLUSTER else ""
    return Place(view="usage", subject=subject if asked else None)


def _requests(state: ClusterState, subject: Subject) -> Place:
    """`:requests qwen` shows those of the model or the key of that name, `:requests` all."""
    if subject.target != Target.CLUSTER:
        return Place(view="requests", subject=subject)
    if subject.key in state.models:
        return Place(view="requests", subject=Subject(target=Target.MODEL, key=subject.key))
    key = find(state, Target.KEY, subject.key) if subject.key else None
    return Place(view="requests", subject=Subject(target=Target.KEY, key=key) if key is not None else None)


def _request(_: ClusterState, subject: Subject) -> Place:
    """`:why ID` shows that request, `:why` the list they are in."""
    if not subject.key or subject.target not in (Target.CLUSTER, Target.REQUEST):
        return Place(view="requests")
    return Place(view="request", subject=Subject(target=Target.REQUEST, key=subject.key))


_KEY_VIEWS = ("keys", "key", "team", "tenant")

HANDLERS: tuple[Handler, ...] = (
    Handler(
        action_id="model.explain",
        targets=(Target.MODEL, Target.REPLICA),
        when=_has_model,
        opens=_explanation,
        footer=60,
    ),
    Handler(
        action_id="cluster.logs",
        targets=(Target.REPLICA, Target.MODEL, Target.NODE),
        when=_has_log,
        opens=_log,
        footer=58,
    ),
    Handler(
        action_id="model.show",
        variant="try",
        name="Try it",
        help="ask it something and watch the answer come",
        bound="t",
        targets=(Target.MODEL, Target.REPLICA),
        when=_answers,
        opens=_trial,
        footer=57,
    ),
    Handler(
        action_id="cluster.series",
        targets=(Target.MODEL, Target.REPLICA, Target.NODE),
        opens=place_of_subject,
        footer=54,
    ),
    Handler(action_id="request.list", bound="", targets=(Target.CLUSTER,), opens=_requests),
    Handler(
        action_id="request.list",
        variant="of",
        help="requests as they end, and why one waited or failed",
        targets=(Target.MODEL, Target.KEY, Target.TEAM),
        opens=_requests,
        footer=18,
    ),
    Handler(action_id="request.show", bound="", targets=(Target.CLUSTER,), opens=_request),
    Handler(action_id="request.show", variant="row", targets=(Target.REQUEST,), opens=_request, footer=60),
    Handler(action_id="model.start", when=_stopped, do=lambda api, key: api.start(key).message, footer=50),
    Handler(action_id="model.scale", when=_scalable, form="console.screens.scale:ScaleForm", footer=48),
    Handler(action_id="model.fallbacks", when=_editable, form="console.screens.fallbacks:FallbacksForm", footer=47),
    Handler(
        action_id="replica.restart",
        targets=(Target.REPLICA,),
        do=lambda api, key: api.restart(key).message,
        warn=consequences.restarts_replicas,
        footer=46,
    ),
    Handler(
        action_id="replica.restart",
        variant="model",
        targets=(Target.MODEL,),
        when=_restartable,
        do=lambda api, key: api.restart(key).message,
        warn=consequences.restarts_models,
        footer=46,
    ),
    Handler(
        action_id="model.stop",
        when=_running,
        do=lambda api, key: api.stop(key).message,
        warn=consequences.stops_models,
        footer=44,
    ),
    Handler(
        action_id="model.remove",
        when=_editable,
        do=lambda api, key: api.remove(key).message,
        warn=consequences.removes_models,
        footer=20,
    ),
    Handler(
        action_id="model.remove",
        variant="files",
        name="Remove with its files…",
        bound="",
        when=_editable,
        do=lambda api, key: api.remove(key, purge=True).message,
        warn=consequences.purges_models,
    ),
    Handler(action_id="model.serve", targets=(Target.CLUSTER,), form="console.screens.serve:ServeForm", footer=40),
    Handler(
        action_id="key.create",
        targets=(Target.CLUSTER,),
        views=_KEY_VIEWS,
        form="console.screens.key_form:KeyForm",
        footer=50,
    ),
    Handler(
        action_id="team.create",
        bound="N",
        targets=(Target.CLUSTER,),
        views=_KEY_VIEWS,
        form="console.screens.scope_form:TeamForm",
        footer=40,
    ),
    Handler(
        action_id="tenant.create",
        bound="T",
        targets=(Target.CLUSTER,),
        views=_KEY_VIEWS,
        form="console.screens.scope_form:TenantForm",
        footer=39,
    ),
    Handler(
        action_id="usage.list",
        bound="u",
        targets=(Target.CLUSTER,),
        views=_KEY_VIEWS,
        opens=_usage,
        footer=45,
    ),
    Handler(action_id="key.limits", when=_good_key, form="console.screens.quota_forms:LimitsForm", footer=56),
    Handler(action_id="key.budget", when=_good_key, form="console.screens.quota_forms:BudgetForm", footer=55),
    Handler(action_id="key.move", when=_good_key, form="console.screens.quota_forms:MoveForm", footer=47),
    Handler(action_id="team.limits", when=_known_scope, form="console.screens.quota_forms:LimitsForm", footer=56),
    Handler(action_id="team.budget", when=_known_scope, form="console.screens.quota_forms:BudgetForm", footer=55),
    Handler(action_id="team.move", when=_known_scope, form="console.screens.quota_forms:MoveForm", footer=47),
    Handler(
        action_id="team.remove",
        when=_nothing_beneath,
        do=lambda api, key: api.remove_scope(ScopeKind.TEAM, key).message,
        warn=consequences.removes_teams,
        footer=46,
    ),
    Handler(action_id="tenant.limits", when=_known_scope, form="console.screens.quota_forms:LimitsForm", footer=56),
    Handler(action_id="tenant.budget", when=_known_scope, form="console.screens.quota_forms:BudgetForm", footer=55),
    Handler(
        action_id="tenant.remove",
        when=_nothing_beneath,
        do=lambda api, key: api.remove_scope(ScopeKind.TENANT, key).message,
        warn=consequences.removes_tenants,
        footer=46,
    ),
    Handler(
        action_id="key.revoke",
        when=_good_key,
        do=lambda api, key: api.revoke_key(key).message,
        warn=consequences.revokes_keys,
        look=consequences.used_lately,
        typed=False,
        footer=46,
    ),
    Handler(
        action_id="node.join-token",
        name="Let a node join…",
        targets=(Target.CLUSTER,),
        views=("nodes",),
        form="console.screens.join_form:JoinForm",
        footer=40,
    ),
    Handler(
        action_id="weights.fetch",
        targets=(Target.CLUSTER,),
        views=("weights",),
        form="console.screens.fetch_form:FetchForm",
        footer=50,
    ),
    Handler(
        action_id="weights.fetch",
        variant="again",
        name="Try again",
        help="fetch a set that failed again, at once",
        bound="r",
        targets=(Target.WEIGHTS,),
        when=_failed_weights,
        do=lambda api, key: api.fetch_weights(key).message,
        footer=48,
    ),
    Handler(
        action_id="weights.verify",
        when=_whole_weights,
        do=lambda api, key: api.verify_weights(key).message,
        footer=47,
    ),
    Handler(
        action_id="weights.remove",
        when=_orphan,
        do=lambda api, key: api.remove_weights(key).message,
        warn=consequences.removes_weights,
        footer=46,
    ),
    Handler(action_id="node.cordon", when=_open_node, do=lambda api, key: api.cordon(key, True).message, footer=50),
    Handler(action_id="engine.check", do=check_engines),
    Handler(
        action_id="node.build",
        variant="vllm",
        name="vLLM build…",
        when=builds_packages,
        form="console.screens.build_form:VllmBuildForm",
    ),
    Handler(
        action_id="node.build",
        variant="sglang",
        name="SGLang build…",
        when=builds_packages,
        form="console.screens.build_form:SglangBuildForm",
    ),
    Handler(
        action_id="node.build",
        variant="llamacpp",
        name="llama.cpp build…",
        when=real_node,
        form="console.screens.build_form:LlamaCppBuildForm",
    ),
    Handler(
        action_id="cluster.logs",
        variant="build",
        name="Installation's log",
        help="what installing an engine prints, or printed before it failed",
        bound="",
        targets=(Target.NODE,),
        when=has_build_log,
        opens=install_log,
    ),
    Handler(action_id="node.uncordon", when=_cordoned, do=lambda api, key: api.cordon(key, False).message, footer=50),
)


def allowed(handler: Handler, *, role: str, read_only: bool) -> bool:
    """Whether someone of `role` may use it; what changes something is absent in read-only mode."""
    if read_only and handler.changes:
        return False
    return permission_of(role) >= handler.action.permission


def permission_of(role: str) -> Permission:
    """What a role of the feed may do; one that this version does not know may look."""
    try:
        return Permission[role.upper()]
    except KeyError:
        return Permission.VIEWER


def possible(handlers: tuple[Handler, ...], state: ClusterState, subjects: tuple[Subject, ...]) -> list[Handler]:
    """Handlers that make sense for every one of `subjects`, and those that need none."""
    return [handler for handler in handlers if Target.CLUSTER in handler.about or _fits(handler, state, subjects)]


def _fits(handler: Handler, state: ClusterState, subjects: tuple[Subject, ...]) -> bool:
    # A page and a form are about one thing; a call can be made for each of several.
    if not subjects or (len(subjects) > 1 and handler.do is None):
        return False
    return all(subject.target in handler.about and handler.when(state, subject) for subject in subjects)
