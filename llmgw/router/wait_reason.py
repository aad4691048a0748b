"""Why a request waits for its place, in a few words with the figures of that moment."""

import time

from llmgw.core.admission import Admission
from llmgw.router.gauge import Measured
from llmgw.router.ports import RouterState
from llmgw.router.saturation import STALE_S


def wait_reason(state: RouterState, model: str, measured: Measured, *, first: bool) -> str:
    """What keeps a request for `model`, whose replicas are as `measured`, from being let in now.

    `first` is one before which nobody waits.
    """
    rules = state.routes.admission
    replicas = [r for r in state.routes.replicas(model) if r.external is None and r.id not in state.breakers]
    if measured.load < rules.saturation or not replicas:
        if first:
            return f"the free places of {model} were kept for higher bands"
        return f"others were to be let in to {model} before it"
    whose = f"{model}'s replica was" if len(replicas) == 1 else f"{model}'s {len(replicas)} replicas were"
    figures = _figures(state, [replica.id for replica in replicas], measured, rules)
    return f"{whose} saturated{f' ({figures})' if figures else ''}"


def _figures(state: RouterState, replicas: list[str], measured: Measured, rules: Admission) -> str:
    """`9 of 8 waiting in engines, KV 92%`: what was decided by, not what engines said before the newest requests."""
    since = time.time() - STALE_S
    loads = [load for id_ in replicas if (load := state.loads.get(id_)) is not None]
    kv = [load.kv_used for load in loads if load.kv_used is not None and load.at >= since]
    told: list[str] = []
    if loads:
        waiting = sum(work.waiting for work in measured.works)
        told.append(f"{waiting:.0f} of {rules.waiting_per_replica * len(loads):g} waiting in engines")
    if kv:
        told.append(f"KV {max(kv):.0%}")
    return ", ".join(told)
