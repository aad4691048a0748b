"""Which replicas a model has and a node holds. Counted anew when one comes, goes or moves, never for its figures."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from llmgw.api.watch import ReplicaRow


class _Places:
    """Ids by model and by node, grouped when first asked for."""

    def __init__(self, replicas: Mapping[str, ReplicaRow]) -> None:
        self._replicas = replicas

    @cached_property
    def by_model(self) -> Mapping[str, tuple[str, ...]]:
        """Model → ids of its replicas, in order."""
        return self._grouped(lambda row: (row.model,))

    @cached_property
    def nodes(self) -> Mapping[str, tuple[str, ...]]:
        """Model → the nodes its replicas are on, each once, in the order of the replicas."""
        return {
            model: tuple(dict.fromkeys(name for key in keys for name in nodes_of(self._replicas[key])))
            for model, keys in self.by_model.items()
        }

    @cached_property
    def by_node(self) -> Mapping[str, tuple[str, ...]]:
        """Node → ids of the replicas on it, in order."""
        return self._grouped(nodes_of)

    def _grouped(self, by: Callable[[ReplicaRow], tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for key, row in self._replicas.items():
            for name in by(row):
                groups.setdefault(name, []).append(key)
        return {name: tuple(sorted(keys)) for name, keys in groups.items()}


class ReplicaIndex:
    """The replicas of one state."""

    def __init__(self, replicas: Mapping[str, ReplicaRow], places: _Places | None = None) -> None:
        self._replicas = replicas
        self._places = places or _Places(replicas)

    def after(self, replicas: Mapping[str, ReplicaRow], keys: Iterable[str]) -> "ReplicaIndex":
        """The index of the next state, whose `replicas` differ under `keys`."""
        before = self._replicas
        moved = any(_place(before.get(key)) != _place(replicas.get(key)) for key in keys)
        return ReplicaIndex(replicas, None if moved else self._places)

    def of_model(self, model: str) -> tuple[ReplicaRow, ...]:
        """A model's replicas, in the order of their ids."""
        return tuple(self._replicas[key] for key in self._places.by_model.get(model, ()))

    def nodes_of_model(self, model: str) -> tuple[str, ...]:
        """The nodes a model's replicas are on, each once."""
        return self._places.nodes.get(model, ())

    def on_node(self, node: str) -> tuple[ReplicaRow, ...]:
        """The replicas on a node, in the order of their ids."""
        return tuple(self._replicas[key] for key in self._places.by_node.get(node, ()))


def nodes_of(row: ReplicaRow) -> tuple[str, ...]:
    """Its node, or those of all its shards."""
    return tuple(shard.node for shard in row.shards) or (row.node,)


def _place(row: ReplicaRow | None) -> tuple[str, tuple[str, ...]] | None:
    return None if row is None else (row.model, nodes_of(row))
