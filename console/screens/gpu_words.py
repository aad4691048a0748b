"""What the GPUs view says in words: its modes, the map's title and counts, and what stands where no card is."""

from functools import partial

from console.figures import plural
from console.screens.no_match import keys_of, nothing_matches
from console.state.cards import Mode, card_facts, cards_of
from console.state.cluster import ClusterState
from console.widgets.lines import Line

MEANING = {
    Mode.WORK: "how much of each chip is at work",
    Mode.BUSY: "share of time any kernel ran",
    Mode.MEMORY: "percent of each card's memory in use",
    Mode.TEMPERATURE: "degrees Celsius",
}
KEYS = {Mode.WORK: "w", Mode.BUSY: "b", Mode.MEMORY: "m", Mode.TEMPERATURE: "t"}
LABELS = {Mode.WORK: "work", Mode.BUSY: "busy", Mode.MEMORY: "memory", Mode.TEMPERATURE: "temp"}


def notice(state: ClusterState, filter_: str = "") -> list[Line]:
    """Lines where nodes will be."""
    if filter_ and state.load.cards:
        cards = (on for node in state.nodes for on in cards_of(state, node))
        return nothing_matches(filter_, keys_of(cards, partial(card_facts, state)), what="no card")
    if state.nodes:
        return [[("no node has a GPU: replicas run on the processors", "dim")], [("4", "key"), (" shows nodes", "dim")]]
    return [[("No node has joined.", "dim")], [("4", "key"), (" shows nodes, and how one joins", "dim")]]


def counts(state: ClusterState) -> list[tuple[str, str]]:
    """All cards, and how many of each kind, as facts of a title."""
    load = state.load
    if not state.heard:
        return []
    return [
        (plural(load.cards, "card"), ""),
        (f"{load.worn:,} wearing out" if load.worn else "", "bold $error"),
        (f"{load.idle:,} held, idle" if load.idle else "", "bold $warning"),
        (f"{load.at_work:,} at work", ""),
        (f"{load.free:,} free", ""),
    ]
