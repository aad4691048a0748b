"""A card as a line of `ctl top` and `ctl nodes --gpus`, from the feed's rows or from a node's document."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from llmgw.api.card_uses import UNHEARD, card_work
from llmgw.api.node_types import CardInfo, NodeInfo
from llmgw.api.rows import CardRow, FiguresRow, NodeRow
from llmgw.cli.format import duration, share
from llmgw.core import throttle

T = TypeVar("T")
HEADERS = (
    "NODE", "CARD", "NAME", "CLASS", "WORK", "BUSY", "MEMORY", "TEMP", "POWER", "HELD BY", "IDLE", "PROBLEMS",
)  # fmt: skip


class CardLine(msgspec.Struct, frozen=True, kw_only=True):
    """One card with its newest figures; absent ones are null."""

    node: str
    index: int
    name: str
    gpu_class: str
    work_percent: float | None = None
    """Multiprocessors at work where that is counted, else power against its limit."""
    busy_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    model: str = ""
    replica: str = ""
    """Who holds it; empty when it is free."""
    idle_s: float | None = None
    """For how long it did nothing for who holds it."""
    problems: tuple[str, ...] = ()
    """What is wrong, wears out or holds it back, as sentences."""


def lines_of_node(node: NodeInfo, models: Mapping[str, str]) -> list[CardLine]:
    """A node's cards by its document; `models` is whose replica is which."""
    silence = _silence(node.state)
    return [_of_info(node.name, _untold(card) if silence else card, models, silence) for card in node.cards]


def _untold(card: CardInfo) -> CardInfo:
    """The card without its figures: what a node that is not heard said last says nothing of now."""
    return msgspec.structs.replace(
        card,
        memory_used_bytes=None,
        utilization_percent=None,
        temperature_c=None,
        power_w=None,
        sm_active_percent=None,
        throttled=None,
        idle_s=None,
    )


def _silence(state: str) -> str:
    return f"Its node is {state}." if state in UNHEARD else ""


def _of_info(node: str, card: CardInfo, models: Mapping[str, str], silence: str) -> CardLine:
    return CardLine(
        node=node,
        index=card.index,
        name=card.name,
        gpu_class=card.gpu_class,
        work_percent=card_work(card),
        busy_percent=card.utilization_percent,
        memory_used_bytes=card.memory_used_bytes,
        memory_total_bytes=card.memory_total_bytes,
        temperature_c=card.temperature_c,
        power_w=card.power_w,
        power_limit_w=card.power_limit_w,
        model=models.get(card.replica or "", ""),
        replica=card.replica or "",
        idle_s=card.idle_s,
        problems=_problems(silence, card.problem, card.wear_problems, card.throttle if card.throttled else ()),
    )


def lines_of_rows(
    node: NodeRow, figures: FiguresRow | None, models: Mapping[str, str], since: Mapping[str, float], now: float
) -> Iterator[CardLine]:
    """The same by the feed; `since` is when replicas came to their state."""
    silence = _silence(node.state)
    told = figures if figures and not silence else FiguresRow(heard=0.0)
    for place, card in enumerate(node.cards):
        resting = _at(told.resting_since, place)
        idle_s = None
        if card.replica and resting is not None:
            idle_s = max(0.0, now - max(resting, since.get(card.replica, resting)))
        reasons = _at(told.throttle_reasons, place) or 0
        yield CardLine(
            node=node.name,
            index=card.index,
            name=card.name,
            gpu_class=card.gpu_class,
            work_percent=_at(told.work_percent, place),
            busy_percent=_at(told.utilization_percent, place),
            memory_used_bytes=_at(told.memory_used_bytes, place),
            memory_total_bytes=card.memory_total_bytes,
            temperature_c=_at(told.temperature_c, place),
            power_w=_at(told.power_w, place),
            power_limit_w=card.power_limit_w,
            model=models.get(card.replica or "", ""),
            replica=card.replica or "",
            idle_s=idle_s,
            problems=_problems(
                silence, _trouble(card), card.wear, throttle.words(reasons) if throttle.throttled(reasons) else ()
            ),
        )


def _trouble(card: CardRow) -> str:
    return card.problem or ("" if card.healthy else "The card is not healthy.")


def _problems(silence: str, problem: str, wear: Sequence[str], held_back: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for text in (silence, problem, *wear, *(f"Held back: {word}." for word in held_back)) if text)


def cells(card: CardLine) -> list[str]:
    """The line's cells under HEADERS."""
    return [
        card.node,
        str(card.index),
        card.name,
        card.gpu_class,
        percent(card.work_percent),
        percent(card.busy_percent),
        memory(card.memory_used_bytes, card.memory_total_bytes),
        "-" if card.temperature_c is None else f"{card.temperature_c:.0f} °C",
        power(card.power_w, card.power_limit_w),
        f"{card.model} ({card.replica})" if card.model else card.replica or "-",
        "" if card.idle_s is None else duration(card.idle_s),
        "; ".join(sentence.rstrip(".") for sentence in card.problems),
    ]


def percent(value: float | None) -> str:
    """`61%`; `-` for none."""
    return "-" if value is None else f"{value:.0f}%"


def memory(used: int | None, total: int | None) -> str:
    """`61/80 GB`; `-/80 GB` while what is used is not told, `-` for a card without memory of its own."""
    if not total:
        return "-"
    return share(used, total) if used is not None else f"-/{share(0, total).removeprefix('0/')}"


def power(draw: float | None, limit: float | None) -> str:
    """`300/700 W`; `-` for none."""
    if draw is None:
        return "-"
    return f"{draw:.0f} W" if limit is None else f"{draw:.0f}/{limit:.0f} W"


def _at(column: Sequence[T], place: int) -> T | None:
    return column[place] if place < len(column) else None
