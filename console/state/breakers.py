"""What the routers' breakers say of a replica or a model, as sentences; where all are closed they say nothing."""

from console.figures import plural
from console.state.cluster import ClusterState
from llmgw.api.watch import ReplicaRow

OPEN, HALF_OPEN = "open", "half-open"
_SAYS = {
    OPEN: "breaker open: routers send it nothing",
    HALF_OPEN: "breaker half-open: one request finds out whether it healed",
}


def sentence_of(state: ClusterState, replica: ReplicaRow) -> str:
    """Its breakers' state, on how many routers and why where the server says so."""
    said = _SAYS.get(replica.breaker, "")
    if not said or state.head is None:
        return said
    subject = f"replica {replica.id} of model {replica.model}: breaker open "
    details = next((p.removeprefix(subject) for p in state.head.problems if p.startswith(subject)), "")
    return f"{said}; {details}" if details else said


def open_of(state: ClusterState, model: str) -> str:
    """How many of a model's replicas are kept from requests."""
    states = [replica.breaker for replica in state.replicas_of(model)]
    kept = states.count(OPEN) + states.count(HALF_OPEN)
    return f"{kept} of {plural(len(states), 'replica')} kept from requests by a breaker" if kept else ""
