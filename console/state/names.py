"""What people call something: a key goes by its name, which its id stands for; all else by its own key."""

from console.state.cluster import ClusterState
from llmgw.api.actions import Target


def called(state: ClusterState, target: Target, key: str) -> str:
    """Its name; its key where the feed does not know it any more."""
    row = state.keys.get(key) if target is Target.KEY else None
    return row.name if row is not None and row.name else key


def beside(state: ClusterState, target: Target, key: str) -> str:
    """What else tells it from its like: the id of what goes by its name, else nothing."""
    return key if called(state, target, key) != key else ""
