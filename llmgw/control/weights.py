"""The mirror as the reconciler sees it: is the source here, and what do the weights say of themselves."""

from llmgw.control.weights_pace import limited
from llmgw.core.catalog import ModelFacts
from llmgw.core.snapshot import WeightsState
from llmgw.core.sources import SimSource, parse_source
from llmgw.core.units import GB, size
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.service import Mirror

_SIM = "sim:"


class MirrorWeights:
    """`reconciler.Weights` over this server's mirror."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def ensure(self, source: str) -> None:
        """Have it fetched, if it is not there or on its way."""
        self._mirror.ensure(source)

    def state(self, source: str) -> WeightsState:
        """Where it stands; a simulated model has no weights to wait for."""
        if source.startswith(_SIM):
            return WeightsState(ready=True)
        status = self._mirror.status(source)
        if status is None:
            return WeightsState(message="waiting for the mirror to fetch its weights")
        return WeightsState(
            ready=status.state is SetState.READY,
            failed=status.state is SetState.FAILED,
            message=sentence(status, self._mirror.downloads.bytes_s),
        )

    def facts(self, source: str) -> ModelFacts | None:
        """Read from the weights' own header once they are there; a simulated model's source states its own."""
        if source.startswith(_SIM):
            return simulated_facts(source)
        return self._mirror.facts(source)


def simulated_facts(source: str) -> ModelFacts | None:
    """What a `sim:` source says it would weigh; none when it says nothing."""
    parsed = parse_source(source)
    if not isinstance(parsed, SimSource) or not (parsed.weights_gb or parsed.kv_kb):
        return None
    return ModelFacts(weights_bytes=round(parsed.weights_gb * GB), kv_bytes_per_token=round(parsed.kv_kb * 1000))


def sentence(status: SetStatus, limit_bytes_s: int = 0) -> str:
    """`the mirror fetches 41% of 98 MB, limited to 20 MB/s in all`; a failure in its own words."""
    if status.state is SetState.READY:
        return ""
    if status.state is SetState.FAILED:
        return status.message or "the mirror could not fetch the weights"
    doing = {
        SetState.RESOLVING: "the mirror looks the source up",
        SetState.FETCHING: "the mirror fetches",
        SetState.CHECKING: "the mirror checks",
    }[status.state]
    if status.state is SetState.RESOLVING:
        return doing
    if status.message:
        return f"on the mirror, {status.message}"
    why = f", {limited(limit_bytes_s)}" if limit_bytes_s and status.state is SetState.FETCHING else ""
    if status.total_bytes:
        return f"{doing} {100 * status.done_bytes // status.total_bytes}% of {size(status.total_bytes)}{why}"
    return f"{doing} {size(status.done_bytes)}{why}"
