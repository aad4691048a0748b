"""What cards do for those who hold them: at work or at rest, and what a model gets from its own.

Pure, and the one place for it: console, `ctl` and the metrics page show these figures and no others. A figure that no
card reports is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

AT_WORK_PERCENT = 3.0
"""A held card at or above this works; below it a driver's own upkeep explains the figure."""
SECONDS_AN_HOUR = 3600.0


def work_of(sm_percent: float | None, power_w: float | None, limit_w: float | None) -> float | None:
    """How much of the chip works: multiprocessors active where that is read, else power against its limit."""
    return sm_percent if sm_percent is not None else load_of(power_w, limit_w)


def load_of(power_w: float | None, limit_w: float | None) -> float | None:
    """Power against its limit, percent; none unless both are above zero."""
    if power_w is None or limit_w is None or power_w <= 0 or limit_w <= 0:
        return None
    return min(100.0, 100.0 * power_w / limit_w)


def activity_of(busy: float | None, work: float | None) -> float | None:
    """Busy where it is known, else work, which a resting card's power may feign: what tells an idle card."""
    return busy if busy is not None else work


def rests(busy: float | None, work: float | None) -> bool:
    """Whether the card does nothing; one that reports neither may well work."""
    activity = activity_of(busy, work)
    return activity is not None and activity < AT_WORK_PERCENT


class Use:
    """Cards of one holder, added up. A mean is over the cards that report the figure.

    Sums and counts are attributes of their own: a console of a thousand nodes adds thousands of cards a second.
    """

    __slots__ = (
        *("busy_known", "busy_sum", "cards", "idle", "idle_w", "load_known", "load_sum", "power_known", "power_sum"),
        *("resting_since", "sm_known", "sm_sum", "work_known", "work_sum"),
    )

    def __init__(self) -> None:
        self.cards = self.busy_known = self.work_known = self.load_known = self.sm_known = self.power_known = 0
        self.busy_sum = self.work_sum = self.load_sum = self.sm_sum = self.power_sum = 0.0
        self.idle: tuple[int, ...] = ()
        """Places of those that do nothing."""
        self.idle_w: float | None = None
        """What those draw; none while none of them tells."""
        self.resting_since: float | None = None
        """The moment from which all of those did nothing, as far as it is known."""

    def add(
        self,
        place: int,
        *,
        busy: float | None = None,
        work: float | None = None,
        sm: float | None = None,
        power_w: float | None = None,
        limit_w: float | None = None,
        since: float | None = None,
        told: bool = True,
    ) -> None:
        """One more card. `since` is when it came to rest.

        One that is not `told` of any more is held and has no figures: what its node said last says nothing of now.
        """
        self.cards += 1
        if not told:
            return
        if busy is not None:
            self.busy_sum += busy
            self.busy_known += 1
        if work is not None:
            self.work_sum += work
            self.work_known += 1
        if sm is not None:
            self.sm_sum += sm
            self.sm_known += 1
        if power_w is not None:
            self.power_sum += power_w
            self.power_known += 1
            if (load := load_of(power_w, limit_w)) is not None:
                self.load_sum += load
                self.load_known += 1
        if rests(busy, work):
            self.idle = (*self.idle, place)
            if power_w is not None:
                self.idle_w = (self.idle_w or 0.0) + power_w
            if since is not None:
                self.resting_since = max(since, self.resting_since or since)

    def take(self, other: "Use") -> None:
        """All cards of another; which of them are idle is told holder by holder."""
        self.cards += other.cards
        self.busy_sum += other.busy_sum
        self.busy_known += other.busy_known
        self.work_sum += other.work_sum
        self.work_known += other.work_known
        self.load_sum += other.load_sum
        self.load_known += other.load_known
        self.sm_sum += other.sm_sum
        self.sm_known += other.sm_known
        self.power_sum += other.power_sum
        self.power_known += other.power_known


def _mean(total: float, known: int) -> float | None:
    return total / known if known else None


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What one model gets from its cards. Means are percent, over the cards that say; none where none does."""

    model: str
    cards: int
    tokens_per_s: float
    """Output tokens."""
    busy: float | None
    work: float | None
    load: float | None
    """Power against its limit."""
    sm: float | None
    """Multiprocessors active, where they are counted."""
    draw_w: float | None
    draw_cards: int = 0
    """Cards whose draw that is: those that report it."""

    @property
    def per_card(self) -> float:
        """Output tokens a second from each card."""
        return self.tokens_per_s / self.cards if self.cards else 0.0

    @property
    def tokens_per_wh(self) -> float | None:
        """Output tokens for a watt-hour; none unless both are above zero."""
        if not self.draw_w or self.draw_w <= 0 or self.tokens_per_s <= 0:
            return None
        return self.tokens_per_s * SECONDS_AN_HOUR / self.draw_w


def efficiency(model: str, use: Use, tokens_per_s: float) -> Efficiency:
    """What a model that holds these cards gets from them."""
    return Efficiency(
        model=model,
        cards=use.cards,
        tokens_per_s=tokens_per_s,
        busy=_mean(use.busy_sum, use.busy_known),
        work=_mean(use.work_sum, use.work_known),
        load=_mean(use.load_sum, use.load_known),
        sm=_mean(use.sm_sum, use.sm_known),
        draw_w=use.power_sum if use.power_known else None,
        draw_cards=use.power_known,
    )


def best_first(lines: Iterable[Efficiency]) -> list[Efficiency]:
    """The best per card first."""
    return sorted(lines, key=lambda line: (-line.per_card, line.model))


def by_model(uses: Iterable[tuple[str, Use]]) -> dict[str, Use]:
    """Sums over holders, from each one's model and cards."""
    sums: dict[str, Use] = {}
    for model, use in uses:
        if model not in sums:
            sums[model] = Use()
        sums[model].take(use)
    return sums
