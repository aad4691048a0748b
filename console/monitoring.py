"""Where the charts of something are, and what the `:` line calls them."""

from console.places import Place, Subject
from console.state.cluster import ClusterState
from console.state.monitored import card_of
from llmgw.api.actions import Target
from llmgw.api.series import CLUSTER, Of, Scope, parse_of
from llmgw.core.errors import InvalidInput

SCOPES = {Target.MODEL: Scope.MODEL, Target.NODE: Scope.NODE, Target.CARD: Scope.CARD}


def of_place(place: Place) -> Of:
    """What a place's charts are of."""
    subject = place.subject
    return CLUSTER if subject is None else Of(SCOPES[subject.target], subject.key)


def chart_place(of: Of) -> Place:
    """Where the charts of something are."""
    if of.scope is Scope.CLUSTER:
        return Place(view="monitor")
    target = next(target for target, scope in SCOPES.items() if scope is of.scope)
    return Place(view="charts", subject=Subject(target=target, key=of.name))


def place_of_subject(state: ClusterState, subject: Subject) -> Place | None:
    """The charts of a row: of a replica, its model's."""
    if subject.target == Target.REPLICA:
        replica = state.replicas.get(subject.key)
        return None if replica is None else chart_place(Of(Scope.MODEL, replica.model))
    scope = SCOPES.get(subject.target)
    return None if scope is None else chart_place(Of(scope, subject.key))


def named(state: ClusterState, text: str) -> Of | str:
    """What `:monitor TEXT` means, or a sentence that says why it means nothing; a bare name is a model or a node."""
    if ":" not in text and text in state.nodes and text not in state.models:
        return Of(Scope.NODE, text)
    try:
        of = parse_of(text if ":" in text or text == Scope.CLUSTER else f"{Scope.MODEL.value}:{text}")
    except InvalidInput:
        of = Of(Scope.MODEL, text)
    if of.scope is Scope.MODEL and of.name not in state.models and text in state.models:
        # A model's own name may hold a colon.
        of = Of(Scope.MODEL, text)
    there = {
        Scope.CLUSTER: True,
        Scope.MODEL: of.name in state.models,
        Scope.NODE: of.name in state.nodes,
        Scope.CARD: of.scope is Scope.CARD and card_of(state, of.name) is not None,
    }
    if there[of.scope]:
        return of
    return f"no {of.scope.value} is called {of.name[:80]!r}: cluster, model:NAME, node:NAME or card:NODE/INDEX"


def names(state: ClusterState, begun: str) -> list[str]:
    """What one may write after `:monitor `; cards once one begins with them, for there may be thousands."""
    found = [
        Scope.CLUSTER.value,
        *(f"model:{name}" for name in state.models),
        *(f"node:{name}" for name in state.nodes),
    ]
    if begun.startswith("card:"):
        found += [f"card:{node.name}/{card.index}" for node in state.nodes.values() for card in node.cards]
    return found
