"""Catalog and settings in memory follow the store, never backwards."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import cast

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from llmgw.control.catalog import Catalog
from llmgw.control.settings_in_force import SettingsInForce
from llmgw.core.catalog import Model
from llmgw.store.catalog import CatalogEntry
from llmgw.store.store import Store

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def entry(name: str) -> CatalogEntry:
    spec = Model(name=name, source="sim:x")
    return CatalogEntry(spec=spec, facts=None, declared=False, created=MADE, changed=MADE, generation=1)


class SlowOnce:
    """A store whose first reading takes longer than the second, which already sees another's change."""

    def __init__(self, older: object, newer: object) -> None:
        self.go_on = trio.Event()
        self._readings = [older, newer]

    async def run(self, read: object) -> object:
        """What there was when the reading began."""
        found = self._readings.pop(0)
        if self._readings:
            await self.go_on.wait()
        await trio.lowlevel.checkpoint()
        return found


async def read_twice(store: SlowOnce, read: Callable[[Store], Awaitable[None]]) -> None:
    """A second reading begins, and may end, while the first is on its way."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, cast("Store", store))
        await wait_all_tasks_blocked()
        nursery.start_soon(read, cast("Store", store))
        await wait_all_tasks_blocked()
        store.go_on.set()


@pytest.mark.trio
async def test_an_older_list_never_takes_the_place_of_a_newer_one() -> None:
    catalog = Catalog(lambda: None)
    await read_twice(SlowOnce((entry("removed meanwhile"), entry("kept")), (entry("kept"),)), catalog.read)
    assert [known.model.name for known in catalog.entries()] == ["kept"]


@pytest.mark.trio
async def test_an_older_setting_never_takes_the_place_of_a_newer_one() -> None:
    told: list[float] = []
    settings = SettingsInForce(lambda: told.append(settings.timeouts.queue))
    key = "router.timeouts.queue"
    await read_twice(SlowOnce({key: msgspec.Raw(b"5.0")}, {key: msgspec.Raw(b"7.0")}), settings.read)
    assert settings.timeouts.queue == 7.0
    assert told[-1] == 7.0
