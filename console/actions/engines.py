"""Engines of a node: what a check found, as one sentence, and which can be installed there."""

from typing import TYPE_CHECKING

from console.places import Place, Subject
from console.state.cluster import ClusterState
from llmgw.api.actions import Target
from llmgw.api.problems import Refused
from llmgw.core.engine_builds import INSTALLED

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient


def check_engines(api: "AdminClient", node: str) -> str:
    """Who takes all flags; raises Refused with everything that is not as it should be."""
    verdicts = api.check_engines(node=node)
    bad = [verdict.message for verdict in verdicts if not verdict.good]
    if bad:
        raise Refused("; ".join(bad))
    asked = [verdict for verdict in verdicts if verdict.engine]
    if not asked:
        return "; ".join(verdict.message for verdict in verdicts) or f"{node} has no engine to ask"
    names = ", ".join(f"{verdict.engine} {verdict.version}" for verdict in asked)
    return f"{names} on {node} {'takes' if len(asked) == 1 else 'take'} every flag that llmgw and profiles give"


def real_node(state: ClusterState, subject: Subject) -> bool:
    """Whether engines can be installed there at all."""
    node = state.nodes.get(subject.key)
    return node is not None and not node.simulated


def builds_packages(state: ClusterState, subject: Subject) -> bool:
    """Whether the node is meant for engines that need a card."""
    node = state.nodes.get(subject.key)
    return node is not None and not node.simulated and bool(node.cards)


def install_log(state: ClusterState, subject: Subject) -> Place | None:
    """The log of what is being installed there, or was not; none while nothing is."""
    node = state.nodes.get(subject.key)
    for engine in node.engines if node is not None else ():
        if engine.engine in INSTALLED and (engine.installing or (engine.version and not engine.usable)):
            key = f"{subject.key}:{engine.engine}"
            return Place(view="logs", subject=Subject(target=Target.NODE, key=key))
    return None


def has_build_log(state: ClusterState, subject: Subject) -> bool:
    """Whether there is such a log."""
    return install_log(state, subject) is not None
