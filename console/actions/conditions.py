"""When an action makes sense for a row as it is: what would be refused, or change nothing, is not offered."""

from console.places import Subject
from console.state.cluster import ClusterState
from console.state.scopes import KINDS, scope
from llmgw.api.actions import Target


def stopped(state: ClusterState, subject: Subject) -> bool:
    """Whether it was stopped, and may be started here."""
    model = state.models.get(subject.key)
    return model is not None and model.spec.stopped and not model.declared


def running(state: ClusterState, subject: Subject) -> bool:
    """Whether it is to run, and may be stopped here."""
    model = state.models.get(subject.key)
    return model is not None and not model.spec.stopped and not model.declared


def runs_here(state: ClusterState, subject: Subject) -> bool:
    """Whether it has replicas at all: a model that is served outside the cluster has none."""
    model = state.models.get(subject.key)
    return model is not None and not model.spec.external


def scalable(state: ClusterState, subject: Subject) -> bool:
    """Whether its replicas are counted here, and the count may be changed."""
    return runs_here(state, subject) and editable(state, subject)


def restartable(state: ClusterState, subject: Subject) -> bool:
    """Whether it has replicas that are to run."""
    return runs_here(state, subject) and running(state, subject)


def editable(state: ClusterState, subject: Subject) -> bool:
    """Whether its entry may be changed here: one that the settings declare may not."""
    model = state.models.get(subject.key)
    return model is not None and not model.declared


def cordoned(state: ClusterState, subject: Subject) -> bool:
    """Whether nothing new is placed on it."""
    node = state.nodes.get(subject.key)
    return node is not None and node.state == "cordoned"


def open_node(state: ClusterState, subject: Subject) -> bool:
    """Whether something new may be placed on it."""
    return subject.key in state.nodes and not cordoned(state, subject)


def good_key(state: ClusterState, subject: Subject) -> bool:
    """Whether it is not revoked."""
    key = state.keys.get(subject.key)
    return key is not None and key.revoked is None


def known_scope(state: ClusterState, subject: Subject) -> bool:
    """Whether the team or the tenant is there."""
    return scope(state, KINDS[subject.target], subject.key) is not None


def nothing_beneath(state: ClusterState, subject: Subject) -> bool:
    """A team without living keys, a tenant without teams: nothing else is removed."""
    row = scope(state, KINDS[subject.target], subject.key)
    if row is None or subject.target == Target.TEAM:
        return row is not None and not row.keys
    return all(other.tenant != row.name for other in state.scopes.values())


def failed_weights(state: ClusterState, subject: Subject) -> bool:
    """Whether fetching it failed."""
    row = state.weights.get(subject.key)
    return row is not None and row.state == "failed"


def whole_weights(state: ClusterState, subject: Subject) -> bool:
    """Whether it is whole on the mirror, and nothing is done with it."""
    row = state.weights.get(subject.key)
    return row is not None and row.state == "ready" and not row.phase


def orphan(state: ClusterState, subject: Subject) -> bool:
    """Whether no model needs it."""
    row = state.weights.get(subject.key)
    return row is not None and not row.models


def has_model(state: ClusterState, subject: Subject) -> bool:
    """Whether it is a model, or a replica of one that is in the catalog."""
    return model_of(state, subject) is not None


def answers(state: ClusterState, subject: Subject) -> bool:
    """Whether a request reaches it: one that makes pictures is asked nothing."""
    model = state.models.get(model_of(state, subject) or "")
    return model is not None and not model.spec.pictures


def model_of(state: ClusterState, subject: Subject) -> str | None:
    """The model itself, or the one that a replica is of, while it is in the catalog."""
    replica = state.replicas.get(subject.key)
    name = subject.key if subject.target == Target.MODEL else replica.model if replica is not None else None
    return name if name in state.models else None
