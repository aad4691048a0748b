"""Which nodes read differently after a change. Requests begin and end ten times a second; that alone touches none."""

from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.index import nodes_of
from llmgw.api.watch import ReplicaRow


def touched_nodes(before: ClusterState, state: ClusterState, diff: Diff) -> frozenset[str]:
    """Nodes whose cards, or what their replicas are about, may have changed between the two states."""
    found = set(diff.keys("nodes", "figures"))
    for key in diff.keys("replicas"):
        old, new = before.replicas.get(key), state.replicas.get(key)
        if _tells_more(old, new):
            found.update(node for row in (old, new) if row is not None for node in nodes_of(row))
    return frozenset(found)


def nodes_moved(before: ClusterState, state: ClusterState, diff: Diff) -> bool:
    """Whether a node came, went, fell silent or is back: what nobody should wait to be told."""
    return any(_state_of(before, name) != _state_of(state, name) for name in diff.keys("nodes"))


def stirred(before: ClusterState, state: ClusterState, diff: Diff) -> bool:
    """Whether anything differs that a sentence about trouble may tell of."""
    if diff.touches("cluster", "models", "nodes", "weights", "keys", "scopes"):
        return True
    old, new = before.replicas, state.replicas
    return any(_says_more(old.get(key), new.get(key)) for key in diff.keys("replicas"))


def _says_more(old: ReplicaRow | None, new: ReplicaRow | None) -> bool:
    if old is None or new is None:
        return old is not new
    return old.since != new.since or old.message != new.message or _tells_more(old, new)


def _tells_more(old: ReplicaRow | None, new: ReplicaRow | None) -> bool:
    if old is None or new is None:
        return old is not new
    if old.state != new.state or old.model != new.model or old.progress != new.progress or old.node != new.node:
        return True
    return old.shards != new.shards and nodes_of(old) != nodes_of(new)


def _state_of(state: ClusterState, name: str) -> str | None:
    node = state.nodes.get(name)
    return None if node is None else node.state
