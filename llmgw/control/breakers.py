"""What the routers of this machine say of replicas they send no requests to, put together. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llmgw.core.external import model_of_external
from llmgw.core.routing import Activity
from llmgw.core.units import plural

OPEN = "open"
HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One replica's breakers; at least one of them is not closed."""

    open_on: int
    """Routers that send it nothing."""
    routers: int
    """Routers that were heard."""
    failure: str
    """Why, a few words."""

    @property
    def state(self) -> str:
        """The worst of them."""
        return OPEN if self.open_on else HALF_OPEN


def gathered(activities: Iterable[Activity]) -> dict[str, Breaker]:
    """By replica id, from what each router said last; a replica all breakers of which are closed is absent."""
    heard = tuple(activities)
    found: dict[str, Breaker] = {}
    for activity in heard:
        for replica, state in activity.breakers.items():
            before = found.get(replica)
            open_on = (before.open_on if before is not None else 0) + (state == OPEN)
            failure = (before.failure if before is not None else "") or activity.breaker_failures.get(replica, "")
            found[replica] = Breaker(open_on, len(heard), failure)
    return found


def state_of(breakers: Mapping[str, Breaker], replica: str) -> str:
    """The state of its breakers; empty when all are closed."""
    return breakers[replica].state if replica in breakers else ""


def sentences(breakers: Mapping[str, Breaker], model_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """What an operator should know of those that are open; a replica that is gone meanwhile is no trouble."""
    found = []
    for replica, breaker in sorted(breakers.items()):
        outside = model_of_external(replica)
        model = outside or model_of(replica)
        if breaker.state != OPEN or model is None:
            continue
        what = "endpoint" if outside is not None else "replica"
        where = f"{breaker.open_on} of {plural(breaker.routers, 'router')}"
        why = f", last failure: {breaker.failure}" if breaker.failure else ""
        found.append(f"{what} {replica} of model {model}: breaker open on {where}{why}")
    return tuple(found)
