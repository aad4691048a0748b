"""The catalog in the leader's memory, read whole from the store whenever it may have changed.

Restarts asked for are kept here and not in the store: they are an order, not a wish, and end with the process.
"""

from collections.abc import Callable, Iterable

import trio

from llmgw.core.catalog import Model
from llmgw.core.errors import NotFound
from llmgw.core.near import did_you_mean
from llmgw.core.snapshot import CatalogEntry
from llmgw.store import catalog as stored_catalog
from llmgw.store.catalog import CatalogEntry as StoredModel
from llmgw.store.store import Store


class Catalog:
    """Entries by name, replaced whole whenever the store was read."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._stored: dict[str, StoredModel] = {}
        self._restart_after: dict[str, float] = {}
        self._reading = trio.Lock()

    async def read(self, store: Store) -> None:
        """Take in what the store holds; raises Unavailable.

        One reading after the other: what was read earlier, before somebody else's change, never takes the place of what
        was read later.
        """
        async with self._reading:
            self.replace(await store.run(stored_catalog.list_models))

    def replace(self, stored: Iterable[StoredModel]) -> None:
        """What the store holds now."""
        self._stored = {entry.name: entry for entry in stored}
        self._restart_after = {k: v for k, v in self._restart_after.items() if k in self._stored}
        self._changed()

    def restart(self, name: str) -> None:
        """Replicas of the model that run now are replaced, one by one."""
        self._restart_after[name] = trio.current_time()
        self._changed()

    def entries(self) -> tuple[CatalogEntry, ...]:
        """Every entry as decisions see it, by name; weights and failures are others' to add."""
        return tuple(
            CatalogEntry(model=e.spec, facts=e.facts, restart_after=self._restart_after.get(name, 0.0))
            for name, e in sorted(self._stored.items())
        )

    def holds(self, name: str) -> bool:
        """Whether a model has this name; aliases do not count."""
        return name in self._stored

    def created(self) -> dict[str, int]:
        """Unix seconds at which each model was added."""
        return {name: int(entry.created.timestamp()) for name, entry in self._stored.items()}

    def find(self, name: str) -> StoredModel:
        """The entry of that name or alias; raises NotFound naming what there is."""
        entry = self._stored.get(name)
        if entry is None:
            entry = next((e for e in self._stored.values() if name in e.spec.aliases), None)
        if entry is None:
            have = ", ".join(sorted(self._stored)[:8]) or "none yet; `llmgw ctl model serve SOURCE` adds one"
            hint = did_you_mean(name, [*self._stored, *self.aliases()]) or f"; models: {have}"
            raise NotFound(f"there is no model {name!r}{hint}")
        return entry

    def fallbacks(self) -> dict[str, tuple[str, ...]]:
        """Each model's own list of those that answer while it cannot."""
        return {name: entry.spec.fallbacks for name, entry in self._stored.items()}

    def aliases(self) -> dict[str, str]:
        """The model each alias belongs to."""
        return {alias: name for name, entry in self._stored.items() for alias in entry.spec.aliases}

    def sources(self) -> frozenset[str]:
        """Sources that some model needs."""
        return frozenset(entry.spec.source for entry in self._stored.values() if entry.spec.source)


def users_of(source: str, models: Iterable[Model]) -> list[str]:
    """Names of the models that come from the source."""
    return sorted(model.name for model in models if model.source == source)
