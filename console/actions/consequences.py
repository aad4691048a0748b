"""What a dangerous action will do, in figures, from the state as it is when one is asked."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from console.figures import money, plural, size
from console.state.cluster import ClusterState
from console.state.scopes import scope
from llmgw.api.watch import ReplicaRow
from llmgw.core.cluster import LIVE_STATES
from llmgw.core.fallbacks import relying_on
from llmgw.core.limits import ScopeKind

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient

MAX_NAMES = 6
"""Names a sentence lists; the others are counted."""
_LIVE = frozenset(str(state) for state in LIVE_STATES)


def stops_models(state: ClusterState, models: tuple[str, ...]) -> str:
    """What ends with these models' replicas."""
    replicas = [replica for model in models for replica in state.replicas_of(model)]
    return f"Stops {_ends(replicas)}. {_keeps(models)}"


def _keeps(models: tuple[str, ...]) -> str:
    return "Its entry stays in the catalog." if len(models) == 1 else "Their entries stay in the catalog."


def removes_models(state: ClusterState, models: tuple[str, ...]) -> str:
    """What is gone with these models; their weights stay on the mirror."""
    replicas = [replica for model in models for replica in state.replicas_of(model)]
    start = f"Removes {plural(len(models), 'model')} from the catalog and stops {_ends(replicas)}"
    return f"{start}. Weights stay.{_relying(state, models)}"


def purges_models(state: ClusterState, models: tuple[str, ...]) -> str:
    """What is gone with these models and their weights."""
    sources = {row.source for model in models if (row := state.models.get(model)) is not None}
    sets = [state.weights[source] for source in sources if source in state.weights]
    total = size(sum(row.total_bytes for row in sets)) if sets else "their files"
    replicas = [replica for model in models for replica in state.replicas_of(model)]
    start = f"Removes {plural(len(models), 'model')} from the catalog, stops {_ends(replicas)}"
    return f"{start}, and deletes {total} of weights.{_relying(state, models)}"


def _relying(state: ClusterState, models: tuple[str, ...]) -> str:
    """Who falls back to one of them and is not among them."""
    declared = {name: row.spec.fallbacks for name, row in state.models.items() if name not in models}
    names = list(dict.fromkeys(name for model in models for name in relying_on(model, declared)))
    if not names:
        return ""
    listed = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else "")
    return f" {listed} {'falls' if len(names) == 1 else 'fall'} back to {'it' if len(models) == 1 else 'them'}."


def removes_weights(state: ClusterState, sources: tuple[str, ...]) -> str:
    """What the mirror loses with these sets; what nobody needs stops nothing."""
    rows = [row for source in sources if (row := state.weights.get(source)) is not None]
    held = [row for row in rows if not row.in_place]
    freed, files = size(sum(row.done_bytes for row in held)), sum(row.files for row in held)
    stay = len(rows) - len(held)
    lie = f" The files of {plural(stay, 'set')} lie where an operator put them, and stay." if stay else ""
    coming = sum(row.state in ("resolving", "fetching", "checking") for row in rows)
    ends = f", ends {plural(coming, 'fetch', 'fetches')} under way" if coming else ""
    sets = f"{plural(len(rows), 'set')} of weights from the mirror"
    return f"Deletes {sets}: frees {freed} in {plural(files, 'file')}{ends}. No model needs it.{lie}"


def restarts_models(state: ClusterState, models: tuple[str, ...]) -> str:
    """What restarts with these models."""
    replicas = [replica for model in models for replica in state.replicas_of(model) if replica.state in _LIVE]
    if not replicas:
        return "No replica runs that could restart."
    one_by_one = " one by one" if len(replicas) > 1 else ""
    return f"Restarts {plural(len(replicas), 'replica')}{one_by_one}; {_requests(replicas)}."


def restarts_replicas(state: ClusterState, ids: tuple[str, ...]) -> str:
    """What restarts with these replicas."""
    replicas = [state.replicas[id_] for id_ in ids if id_ in state.replicas]
    return f"Restarts {plural(len(replicas), 'replica')}; {_requests(replicas)}."


def revokes_keys(state: ClusterState, ids: tuple[str, ...]) -> str:
    """Who is refused from then on, and how much they asked so far."""
    keys = [state.keys[id_] for id_ in ids if id_ in state.keys]
    names = ", ".join(dict.fromkeys(key.name for key in keys[:MAX_NAMES]))
    names += f" and {len(keys) - MAX_NAMES:,} more" if len(keys) > MAX_NAMES else ""
    asked, spent = sum(key.requests for key in keys), sum(key.spent_month_micros for key in keys)
    so_far = f"{plural(asked, 'request')} and {money(spent)} spent this month"
    return f"{names}: refused from now on, for good, after {so_far}. Whoever uses it gets a 401."


def used_lately(api: "AdminClient", ids: tuple[str, ...]) -> str:
    """How much these keys are used: what was asked with them since yesterday began."""
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    rows = [row for row in api.usage("key", since=yesterday) if row.key_id in ids]
    if not rows:
        return "Nothing was asked with it since yesterday."
    asked, failed = sum(row.requests for row in rows), sum(row.failed for row in rows)
    errors = f", {failed:,} of them failed" if failed else ""
    return f"Since yesterday: {plural(asked, 'request')}{errors}, {money(sum(row.cost_micros for row in rows))} spent."


def removes_teams(state: ClusterState, names: tuple[str, ...]) -> str:
    """What is gone with teams that no living key belongs to."""
    return f"Removes {plural(len(names), 'team')}, {_unused(state, ScopeKind.TEAM, names)}"


def removes_tenants(state: ClusterState, names: tuple[str, ...]) -> str:
    """What is gone with tenants that no team belongs to."""
    return f"Removes {plural(len(names), 'tenant')}, {_unused(state, ScopeKind.TENANT, names)}"


def _unused(state: ClusterState, kind: ScopeKind, names: tuple[str, ...]) -> str:
    rows = [row for name in names if (row := scope(state, kind, name)) is not None]
    spent = money(sum(row.cost_micros for row in rows))
    what = "no key is in" if kind is ScopeKind.TEAM else "no team is under"
    return f"which {what} any more. Their usage keeps its name: {spent} spent in all."


def _ends(replicas: Iterable[ReplicaRow]) -> str:
    live = [replica for replica in replicas if replica.state in _LIVE]
    if not live:
        return "no replica, as none runs"
    cards = sum(len(replica.cards) for replica in live)
    frees = f", frees {plural(cards, 'card')}" if cards else ""
    return f"{plural(len(live), 'replica')}{frees}; {_requests(live)}"


def _requests(replicas: Iterable[ReplicaRow]) -> str:
    flying = sum(replica.in_flight for replica in replicas)
    if not flying:
        return "no request is in flight"
    return f"{plural(flying, 'request')} in flight may end early"
