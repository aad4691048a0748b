"""The catalog in memory follows the store, never backwards."""

from datetime import UTC, datetime
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from llmgw.control.catalog import Catalog
from llmgw.core.catalog import Model
from llmgw.store.catalog import CatalogEntry
from llmgw.store.store import Store

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def entry(name: str) -> CatalogEntry:
    spec = Model(name=name, source="sim:x")
    return CatalogEntry(spec=spec, facts=None, declared=False, created=MADE, changed=MADE, generation=1)


class SlowOnce:
    """A store whose first reading takes longer than the second, which already sees another's change."""

    def __init__(self) -> None:
        self.go_on = trio.Event()
        self._readings = [("removed meanwhile", "kept"), ("kept",)]

    async def run(self, read: object) -> tuple[CatalogEntry, ...]:
        """What there was when the reading began."""
        names = self._readings.pop(0)
        if self._readings:
            await self.go_on.wait()
        await trio.lowlevel.checkpoint()
        return tuple(entry(name) for name in names)


@pytest.mark.trio
async def test_an_older_list_never_takes_the_place_of_a_newer_one() -> None:
    store, catalog = SlowOnce(), Catalog(lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catalog.read, cast("Store", store))
        await wait_all_tasks_blocked()
        nursery.start_soon(catalog.read, cast("Store", store))
        await wait_all_tasks_blocked()
        store.go_on.set()
    assert [known.model.name for known in catalog.entries()] == ["kept"]
