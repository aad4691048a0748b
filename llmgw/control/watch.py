"""Keeps memory equal to the store: notified of changes, and reading everything again by time behind that."""

import logging
from collections.abc import Awaitable, Callable, Set

import trio

from llmgw.control.catalog import Catalog
from llmgw.control.keys import KeyService
from llmgw.control.nodes import NodeService
from llmgw.control.scopes import ScopeService
from llmgw.core.errors import LlmgwError
from llmgw.store import catalog as stored_catalog
from llmgw.store import keys as stored_keys
from llmgw.store import nodes as stored_nodes
from llmgw.store import scopes as stored_scopes
from llmgw.store import settings as stored_settings
from llmgw.store.listen import Listener
from llmgw.store.notify import RESYNC, Change
from llmgw.store.store import Store

POLL_S = 15.0
"""Everything is read again this often: a notification may be lost with its connection."""
RETRY_S = 1.0
"""Pause after the store refused to be read."""

log = logging.getLogger(__name__)


class StoreWatcher:
    """Reads the store into the services' memory."""

    def __init__(
        self,
        *,
        store: Store,
        listener: Listener,
        catalog: Catalog,
        nodes: NodeService,
        keys: KeyService,
        scopes: ScopeService,
        read_settings: Callable[[], Awaitable[None]],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called whenever anything in the store may have changed."""
        self._store = store
        self._listener = listener
        self._catalog = catalog
        self._nodes = nodes
        self._keys = keys
        self._scopes = scopes
        self._read_settings = read_settings
        self._on_change = on_change

    async def load(self) -> None:
        """Read everything; raises Unavailable."""
        self._nodes.replace(await self._store.run(stored_nodes.list_nodes))
        await self._read_settings()
        await self._catalog.read(self._store)
        await self._scopes.reload()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the store until cancelled; started once everything was read a first time."""
        await self.load_patiently()
        task_status.started()
        while True:
            changes: frozenset[Change] = frozenset()
            with trio.move_on_after(POLL_S):
                changes = await self._listener.changes()
            try:
                await self._take(changes)
            except LlmgwError as error:
                log.warning("the store could not be read: %s", error.message)
                await self.load_patiently()

    async def load_patiently(self) -> None:
        """Read everything, however long the store is away."""
        while True:
            try:
                return await self.load()
            except LlmgwError as error:
                log.warning("the store could not be read: %s", error.message)
                await trio.sleep(RETRY_S)

    async def _take(self, changes: frozenset[Change]) -> None:
        self._on_change()
        topics = {change.topic for change in changes}
        if not changes or RESYNC in topics:
            await self.load()
        else:
            await self._load_some(topics)
        # Keys are in no memory here that could be read anew: routers are told of each, whatever came along with it.
        for change in changes:
            if change.topic == stored_keys.TOPIC:
                await self._keys.changed(change.name)

    async def _load_some(self, topics: Set[str]) -> None:
        if stored_nodes.TOPIC in topics:
            self._nodes.replace(await self._store.run(stored_nodes.list_nodes))
        if stored_settings.TOPIC in topics:
            await self._read_settings()
        if stored_catalog.TOPIC in topics:
            await self._catalog.read(self._store)
        if stored_scopes.TOPIC in topics:
            await self._scopes.reload()
