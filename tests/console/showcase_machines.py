"""The pictures' machines: what cards they have, who holds them, and what their sensors say."""

from collections.abc import Callable

import msgspec

from llmgw.api.watch import CardRow, FiguresRow, NodeRow
from llmgw.core.card_use import AT_WORK_PERCENT
from llmgw.core.throttle import READ
from tests.console.showcase_names import (
    CARDS,
    CLASSES,
    COMING,
    COUNTED,
    FELL_OFF,
    HELD,
    HELD_BACK,
    LIMITS_W,
    SPLIT,
    WEARING,
    WORN,
)
from tests.support.fleet_rows import GB, NOW, card_uuid, figures_row, node_row


def nodes() -> dict[str, NodeRow]:
    """Twelve machines, their cards and who holds them."""
    held: dict[str, dict[int, str]] = {}
    places = [row[:5] for row in HELD] + [row[:5] for row in COMING]
    for id_, _, node, first, cards in places:
        held.setdefault(node, {}).update(dict.fromkeys(range(first, first + cards), id_))
    found = {}
    for number in range(1, 13):
        name = f"gpu{number:02d}"
        state = {"gpu11": "cordoned", "gpu12": "silent"}.get(name, "connected")
        gpu_class = CLASSES.get(name, "h100-80g")
        row = node_row(name, CARDS, gpu_class=gpu_class, held=held.get(name), worn=WORN.get(name, ()), state=state)
        problems = ("the clock is 3.2 s off",) if name == "gpu08" else ()
        told = tuple(_card(name, card) for card in row.cards)
        found[name] = msgspec.structs.replace(row, problems=problems, cards=told)
    return found


def _card(node: str, card: CardRow) -> CardRow:
    """With what a driver tells of it besides its name."""
    limit = LIMITS_W[card.gpu_class]
    told = msgspec.structs.replace(
        card,
        problem=FELL_OFF if not card.healthy else "",
        wear=WEARING.get((node, card.index), ()),
        power_limit_w=limit,
        work_from="sm" if card.gpu_class in COUNTED else "power",
        pcie_generation=5 if card.gpu_class == "h100-80g" else 4,
        pcie_width=16,
        numa_node=card.index // 4,
        nvlink_peers=0 if card.gpu_class == "l40s-48g" else CARDS - 1,
    )
    split_node, place, instance = SPLIT
    if node != split_node or card.index not in (place, place + 1):
        return told
    if card.index == place:
        words = "The card is split into MIG instances; the instances take work, the card does not."
        return msgspec.structs.replace(told, problem=words, memory_total_bytes=None)
    profile = instance.partition("mig-")[2]
    return CardRow(
        uuid=card.uuid,
        index=1000 * (place + 1) + 2,
        name=f"{card.name} MIG {profile}",
        gpu_class=instance,
        memory_total_bytes=40 * GB,
        replica=card.replica,
        parent=card_uuid(node, place),
        mig_profile=profile,
    )


def figures(node: NodeRow, wave: float) -> FiguresRow:
    """A machine's sensors; `wave` is how busy it is, 1 on the mean."""
    work = [0.0] * len(node.cards)
    for _, _, name, first, cards, mean in HELD:
        if name == node.name:
            for index in range(first, first + cards):
                work[index] = min(99.0, mean * wave + (index * 7) % 5)
    heard_s = {"gpu12": 38.0, "gpu08": 4.2}.get(node.name, 1.4)
    return _told(node, work, figures_row(node, tuple(work), heard_s=heard_s))


def _told(node: NodeRow, work: list[float], row: FiguresRow) -> FiguresRow:
    """With each share of its limit, its parts, its rest and what holds it back; an instance has its memory alone."""
    whole = [not card.parent and card.memory_total_bytes is not None and card.healthy for card in node.cards]
    counted = node.cards[0].gpu_class in COUNTED
    held = [id_ for id_ in dict.fromkeys(card.replica for card in node.cards) if id_]

    def column(value: Callable[[int], float], *, only: bool = True) -> tuple[float | None, ...]:
        return tuple(value(place) if whole[place] and only else None for place in range(len(work)))

    power = column(lambda place: (node.cards[place].power_limit_w or 0.0) * (0.14 + 0.0078 * work[place]))
    return msgspec.structs.replace(
        row,
        memory_used_bytes=tuple(
            None if card.memory_total_bytes is None or not card.healthy else used
            for card, used in zip(node.cards, row.memory_used_bytes, strict=True)
        ),
        utilization_percent=column(lambda place: min(100.0, work[place] * 1.4)),
        work_percent=column(lambda place: work[place] if counted else 14.0 + 0.78 * work[place]),
        power_w=power,
        temperature_c=tuple(
            value if card.healthy else None for card, value in zip(node.cards, row.temperature_c, strict=True)
        ),
        memory_temperature_c=column(lambda place: 44.0 + work[place] / 2.4, only=counted),
        sm_clock_mhz=column(lambda place: 1980.0 if work[place] else 345.0),
        sm_occupancy_percent=column(lambda place: work[place] * 0.42, only=counted),
        tensor_active_percent=column(lambda place: work[place] * 0.31, only=counted),
        dram_active_percent=column(lambda place: work[place] * 0.68, only=counted),
        throttle_reasons=tuple(
            READ | HELD_BACK.get((node.name, place), 0) if whole[place] else 0 for place in range(len(work))
        ),
        resting_since=tuple(
            NOW - 18_400.0 if whole[place] and work[place] < AT_WORK_PERCENT else None for place in range(len(work))
        ),
        engine_cpu_percent={id_: 140.0 + 10 * len(id_) for id_ in held},
        engine_memory_bytes={id_: (4 + len(id_) % 5) * GB for id_ in held},
    )
