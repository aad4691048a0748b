"""Which replicas a node holds and a model has, kept by hearing of one replica at a time."""

from collections.abc import Iterable

from llmgw.core.cluster import Replica


class ReplicaIndex:
    """Replicas by id, node and model, as last read from the inventory."""

    def __init__(self) -> None:
        self._replicas: dict[str, Replica] = {}
        self._by_node: dict[str, dict[str, Replica]] = {}
        self._by_model: dict[str, dict[str, Replica]] = {}

    def note(self, replica_id: str, replica: Replica | None) -> tuple[set[str], set[str]]:
        """The replica as it is, or that it is gone; nodes whose holdings changed by it, and models it belongs to."""
        before = self._replicas.pop(replica_id, None)
        if before is not None:
            for node in before.nodes:
                _drop(self._by_node, node, replica_id)
            _drop(self._by_model, before.model, replica_id)
        if replica is not None:
            self._replicas[replica_id] = replica
            for node in replica.nodes:
                self._by_node.setdefault(node, {})[replica_id] = replica
            self._by_model.setdefault(replica.model, {})[replica_id] = replica
        found = [r for r in (before, replica) if r is not None]
        nodes = set() if _holding(before) == _holding(replica) else {node for r in found for node in r.nodes}
        return nodes, {r.model for r in found}

    def ids(self) -> frozenset[str]:
        """Every replica's id."""
        return frozenset(self._replicas)

    def get(self, replica_id: str) -> Replica | None:
        """One replica."""
        return self._replicas.get(replica_id)

    def model_of(self, replica_id: str) -> str | None:
        """The model a replica serves."""
        replica = self._replicas.get(replica_id)
        return None if replica is None else replica.model

    def on_node(self, node: str) -> Iterable[Replica]:
        """What the node runs."""
        return self._by_node.get(node, {}).values()

    def of_model(self, model: str) -> Iterable[Replica]:
        """The model's replicas."""
        return self._by_model.get(model, {}).values()


def _holding(replica: Replica | None) -> tuple[object, ...]:
    """What a node's row says of it."""
    return () if replica is None else (replica.holding, replica.live, replica.cards, replica.memory_bytes)


def _drop(held: dict[str, dict[str, Replica]], name: str, replica_id: str) -> None:
    inner = held[name]
    del inner[replica_id]
    if not inner:
        del held[name]
