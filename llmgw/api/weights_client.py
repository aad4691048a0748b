"""The admin client's calls about weights on the mirror."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from llmgw.api import types as t

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]


class WeightsCalls(ABC):
    """One method an action; `_call` is the client's."""

    def weights(self) -> list[t.WeightsInfo]:
        """Sets of weights on the mirror."""
        return self._call("weights.list", list[t.WeightsInfo])

    def fetch_weights(self, source: str) -> t.Result:
        """Have a set brought to the mirror."""
        return self._call("weights.fetch", t.Result, body=t.WeightsFetch(source=source))

    def verify_weights(self, source: str) -> t.Result:
        """Have a set's files read back against its manifest."""
        return self._call("weights.verify", t.Result, body=t.WeightsVerify(source=source))

    def remove_weights(self, source: str) -> t.Result:
        """Remove a set that no model needs."""
        return self._call("weights.remove", t.Result, query={"source": source})

    def orphans(self) -> t.WeightsOrphans:
        """Sets that no model needs."""
        return self._call("weights.orphans", t.WeightsOrphans)

    def remove_orphans(self, ids: Sequence[str]) -> t.Result:
        """Remove those of these sets that are orphans still."""
        return self._call("weights.remove-orphans", t.Result, body=t.OrphansRemove(ids=tuple(ids)))

    @abstractmethod
    def _call(
        self,
        action_id: str,
        type_: type[T],
        params: Mapping[str, str] | None = None,
        query: Query | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        """Ask for what the action answers."""
