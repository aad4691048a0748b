"""Where actions lead that show something: the place for what the cursor is on, or for what a `:` line names."""

from console.actions import conditions
from console.places import Place, Subject
from console.state.cluster import ClusterState
from console.state.scopes import find
from llmgw.api.actions import Target


def explanation(state: ClusterState, subject: Subject) -> Place | None:
    """Why the model, or the replica's model, is where it is."""
    model = conditions.model_of(state, subject)
    return Place(view="explain", subject=Subject(target=Target.MODEL, key=model)) if model else None


def trial(state: ClusterState, subject: Subject) -> Place | None:
    """Where the model, or the replica's model, is asked something."""
    model = conditions.model_of(state, subject)
    return Place(view="try", subject=Subject(target=Target.MODEL, key=model)) if model else None


def log(state: ClusterState, subject: Subject) -> Place | None:
    """The log of the replica or the node; of a model, that of the replica with the most to tell."""
    if subject.target == Target.MODEL:
        replicas = state.replicas_of(subject.key)
        # What failed has the most to tell.
        chosen = next((replica for replica in replicas if replica.state == "failed"), replicas[0] if replicas else None)
        subject = Subject(target=Target.REPLICA, key=chosen.id) if chosen else subject
    return Place(view="logs", subject=subject) if subject.target != Target.MODEL else None


def has_log(state: ClusterState, subject: Subject) -> bool:
    """Whether there is one: a model without replicas has none."""
    return log(state, subject) is not None


def server_log(_: ClusterState, __: Subject) -> Place:
    """The control plane's own log, called as `ctl logs` calls it."""
    return Place(view="logs", subject=Subject(target=Target.CLUSTER, key="server"))


def usage(_: ClusterState, subject: Subject) -> Place:
    """`:usage team` begins with teams."""
    asked = subject.key if subject.target == Target.CLUSTER else ""
    return Place(view="usage", subject=subject if asked else None)


def requests(state: ClusterState, subject: Subject) -> Place:
    """`:requests qwen` shows those of the model or the key of that name, `:requests` all."""
    if subject.target != Target.CLUSTER:
        return Place(view="requests", subject=subject)
    if subject.key in state.models:
        return Place(view="requests", subject=Subject(target=Target.MODEL, key=subject.key))
    key = find(state, Target.KEY, subject.key) if subject.key else None
    return Place(view="requests", subject=Subject(target=Target.KEY, key=key) if key is not None else None)


def request(_: ClusterState, subject: Subject) -> Place:
    """`:why ID` shows that request, `:why` the list they are in."""
    if not subject.key or subject.target not in (Target.CLUSTER, Target.REQUEST):
        return Place(view="requests")
    return Place(view="request", subject=Subject(target=Target.REQUEST, key=subject.key))
