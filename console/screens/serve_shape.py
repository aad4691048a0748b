"""How a replica is spread out, as a form to serve has it: what cannot be, and what the figures come to."""

from collections.abc import Iterable

from console.figures import plural
from console.screens.fields import said_of, whole
from console.screens.form import Values
from console.widgets.lines import Line
from llmgw.api.rows import NodeRow
from llmgw.core.catalog import CARD_ENGINES, Profile, check_shape
from llmgw.core.errors import InvalidInput
from llmgw.core.serving import profile_for


def shape_problems(values: Values) -> dict[str, str]:
    """Field → why no replica can be spread so; only with fields that are right by themselves."""
    profile = _profile(values)
    if _is_plain(profile):
        return {}
    if profile.gpu_class is None and profile.engine in CARD_ENGINES:
        return {"gpu_class": f"is needed: a replica {_spread(profile)} runs on cards"}
    try:
        check_shape(profile, "")
    except InvalidInput as error:
        key = (error.field or "").rpartition(".")[2]
        return {"nodes" if key == "gpus_per_node" else key: said_of(error)}
    return {}


def shape_remarks(values: Values, nodes: Iterable[NodeRow]) -> dict[str, Line]:
    """How many cards a replica takes, and whether there are as many nodes with as many of them."""
    profile = _profile(values)
    if _is_plain(profile) or shape_problems(values):
        return {}
    cards = profile.tp * profile.pp
    found: dict[str, Line] = {}
    if profile.nodes > 1:
        each = profile.cards_per_node
        able = sum(_cards_of(node, profile.gpu_class) >= each for node in nodes)
        have = f"{plural(able, 'node')} {'has' if able == 1 else 'have'} as many"
        line: Line = [(f"{plural(cards, 'card')}: {each} on each of {profile.nodes} nodes; ", "")]
        found["nodes"] = [*line, (have, "" if able >= profile.nodes else "warn")]
    if profile.pp > 1:
        found["pp"] = [(f"{profile.pp} of {plural(profile.tp, 'card')} each", "")]
    return found


def _profile(values: Values) -> Profile:
    return profile_for(
        values["source"],
        engine=values["engine"] or None,
        gpu_class=values["gpu_class"] or None,
        tp=whole(values["tp"]),
        pp=whole(values["pp"]),
        nodes=whole(values["nodes"]),
    )


def _is_plain(profile: Profile) -> bool:
    return profile.nodes == 1 and profile.pp == 1


def _spread(profile: Profile) -> str:
    return f"on {profile.nodes} nodes" if profile.nodes > 1 else f"in {profile.pp} stages"


def _cards_of(node: NodeRow, gpu_class: str | None) -> int:
    """Its sound whole cards of a class."""
    return sum(card.gpu_class == gpu_class and card.healthy and not card.parent for card in node.cards)
