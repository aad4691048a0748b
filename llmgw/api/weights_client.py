"""The admin client's calls about weights on the mirror."""

from collections.abc import Sequence

from llmgw.api import types as t
from llmgw.api.calls import Calls


class WeightsCalls(Calls):
    """One method an action."""

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
