"""The settings that the services look at while they work, as the store has them now."""

from collections.abc import Callable, Mapping

import msgspec
import trio

from llmgw.control import settings
from llmgw.control.history.metrics_store import StoreSettings
from llmgw.control.weights_pace import Pace
from llmgw.core.admission import Admission
from llmgw.core.requests import Seen
from llmgw.core.routing import Scoring, Timeouts
from llmgw.store import settings as stored_settings
from llmgw.store.store import Store


class SettingsInForce:
    """One a server. Whoever reads the store says what stands there; until then everything is as it always is."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called whenever they were read."""
        self._changed = changed
        self._reading = trio.Lock()
        self.timeouts = Timeouts()
        self.scoring = Scoring()
        self.seen = Seen()
        self.admission = Admission()
        self.metrics_store = StoreSettings()
        self.pace = Pace()

    async def read(self, store: Store) -> None:
        """Take in what the store holds, one reading after the other, so that none goes back. Raises Unavailable."""
        async with self._reading:
            self.take(await store.run(stored_settings.load_settings))
        self._changed()

    def take(self, stored: Mapping[str, msgspec.Raw]) -> None:
        """Settings were read."""
        values = {key: bytes(value) for key, value in stored.items()}
        self.timeouts = settings.timeouts(values)
        self.scoring = settings.scoring(values)
        self.seen = settings.seen(values)
        self.admission = settings.admission(values)
        self.metrics_store = settings.metrics_store_of(values)
        self.pace = settings.pace(values)
