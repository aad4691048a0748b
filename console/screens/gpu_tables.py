"""The two tables under the work map: cards held for nothing, and what each model gets from its cards."""

import math

from console.figures import percent, short_age, watts
from console.screens.states import state_cell
from console.signs import signs
from console.state.history import NODE_SAMPLE_S
from console.state.holdings import IdleHolding, idle_for
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.paint import heat
from llmgw.core.card_use import Efficiency


def _exact(value: float | None) -> str:
    """A whole number with its thousands set off, so that a column of them compares at a glance."""
    return signs().dash if value is None else f"{value:,.0f}"


def _heat_cell(value: float | None) -> Cell:
    return (f"{percent(value):>4} ", heat(value) if value is not None else "dim")


EFFICIENCY: TableSpec[Efficiency] = TableSpec(
    columns=(
        Column(key="model", title="model", width=16, grow=2, most=32, cell=lambda line, _: (line.model, "strong")),
        Column(key="cards", title="GPUs", width=5, align="right", cell=lambda line, _: (_exact(line.cards), "")),
        Column(
            key="tokens",
            title="tokens/s",
            width=8,
            align="right",
            priority=1,
            cell=lambda line, _: (_exact(line.tokens_per_s), ""),
        ),
        Column(
            key="each", title="per GPU", width=7, align="right", cell=lambda line, _: (_exact(line.per_card), "strong")
        ),
        Column(
            key="busy", title="busy", width=5, align="right", priority=3, cell=lambda line, _: _heat_cell(line.busy)
        ),
        Column(
            key="load", title="load", width=5, align="right", priority=5, cell=lambda line, _: _heat_cell(line.load)
        ),
        Column(key="sm", title="SM", width=5, align="right", priority=4, cell=lambda line, _: _heat_cell(line.sm)),
        Column(key="work", title="work", width=5, align="right", cell=lambda line, _: _heat_cell(line.work)),
        Column(
            key="draw", title="draw", width=7, align="right", priority=2, cell=lambda line, _: (watts(line.draw_w), "")
        ),
        Column(
            key="wh",
            title="tokens/Wh",
            width=9,
            align="right",
            cell=lambda line, _: (_exact(line.tokens_per_wh), "strong" if line.tokens_per_wh else "dim"),
        ),
    ),
    words=lambda line: line.model,
    facts=lambda line: {"model": line.model},
    markable=False,
    in_order=True,
)


def idle_cell(holding: IdleHolding, seen: Seen) -> Cell:
    """For how long by the server, else by samples, `>` where it may be more; since its replica is there."""
    replica = seen.state.replicas.get(holding.replica)
    # One that drains was there before it began to; a state before ready asks nothing of its cards.
    held_s = math.inf if replica is None or replica.state == "draining" else seen.now - replica.since
    if holding.resting_since is not None:
        seconds = max(0.0, min(held_s, seen.now - holding.resting_since))
        return ("now", "dim") if seconds <= NODE_SAMPLE_S else (short_age(seconds), "warn")
    seconds, more = idle_for(seen.history, holding.node, holding.places, held_s)
    if seconds <= NODE_SAMPLE_S:
        return ("now", "dim")
    return (f"{'>' if more else ''}{short_age(seconds)}", "warn")


def _cards(holding: IdleHolding) -> str:
    places = ",".join(str(place) for place in holding.places)
    return f"{places} ({len(holding.places)} of {holding.of})" if len(holding.places) < holding.of else places


IDLE: TableSpec[IdleHolding] = TableSpec(
    columns=(
        Column(key="model", title="model", width=12, grow=2, most=32, cell=lambda held, _: (held.model, "strong")),
        Column(key="node", title="node", width=8, grow=1, most=20, cell=lambda held, _: (held.node, "")),
        Column(key="cards", title="cards", width=8, grow=1, most=16, cell=lambda held, _: (_cards(held), "")),
        Column(key="idle", title="idle for", width=8, align="right", cell=idle_cell),
        Column(
            key="draw",
            title="draw",
            width=6,
            align="right",
            priority=1,
            cell=lambda held, _: (watts(held.draw_w), "dim"),
        ),
        Column(key="state", title="replica", width=11, priority=2, cell=lambda held, _: state_cell(held.state)),
        Column(key="id", title="", width=9, grow=1, most=14, priority=3, cell=lambda held, _: (held.replica, "dim")),
    ),
    words=lambda held: f"{held.model} {held.node} {held.replica} {held.state}",
    facts=lambda held: {"model": held.model, "node": held.node, "state": held.state},
    markable=False,
    in_order=True,
)
