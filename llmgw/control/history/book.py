"""All that is remembered, a sheet for each kind of thing. Memory is bounded by what the operator allows, not by luck.

Where not every figure has room for all there is of its kind, those that are worth least are not kept, of anything: a
chart that is there for one card is there for all.
"""

from collections.abc import Iterable, Mapping

from llmgw.api.series import Scope
from llmgw.control.history.packing import HALVES, SINGLE, TENS, TENTHS, WHOLE, Packing, Row
from llmgw.control.history.rings import EACH, SHORT_S, STEPS_KEPT, Track

MB = 1_000_000
ROW_BYTES = 104
"""What a row costs besides what is in it: the array's own head, and its two places in a ring."""
SHEETS: Mapping[Scope, Mapping[str, Packing]] = {
    Scope.CLUSTER: dict.fromkeys(
        (
            *("requests", "errors", "input_tokens", "output_tokens", "first_token_p50", "first_token_p95", "gap_p95"),
            *("open", "waiting", "ready", "work", "busy", "memory", "temperature", "power", "power_cards"),
            *("cards_working", "cards_idle", "cards_free"),
        ),
        SINGLE,
    ),
    Scope.MODEL: {
        **dict.fromkeys(("requests", "errors", "input_tokens", "output_tokens"), SINGLE),
        **dict.fromkeys(("first_token_p50", "first_token_p95", "gap_p95", "power"), SINGLE),
        **dict.fromkeys(("open", "waiting", "ready", "power_cards"), WHOLE),
        **dict.fromkeys(("work", "busy", "memory", "temperature", "kv"), HALVES),
    },
    Scope.NODE: {
        "cpu": HALVES,
        "host_memory": HALVES,
        "load": TENTHS,
        "cpu_temperature": HALVES,
        "cpu_power": TENTHS,
        "inlet": HALVES,
        **dict.fromkeys(("network_in", "network_out"), WHOLE),
        **dict.fromkeys(("infiniband_in", "infiniband_out"), TENS),
    },
    Scope.CARD: {
        "work": HALVES,
        "busy": HALVES,
        "power": TENTHS,
        "temperature": HALVES,
        "memory": HALVES,
        "memory_temperature": HALVES,
        "tensor": HALVES,
        "dram": HALVES,
        "clock": WHOLE,
        "occupancy": HALVES,
    },
}
"""Kind → figure → how it is packed. A node's figures of cards are made of its cards' when somebody asks."""
RANKED: tuple[tuple[Scope, str], ...] = (
    *((Scope.CLUSTER, name) for name in SHEETS[Scope.CLUSTER]),
    *((Scope.MODEL, name) for name in SHEETS[Scope.MODEL]),
    *((Scope.NODE, name) for name in ("cpu", "host_memory", "load")),
    *((Scope.CARD, name) for name in ("work", "busy", "power", "temperature", "memory")),
    *((Scope.NODE, name) for name in ("network_in", "network_out", "infiniband_in", "infiniband_out")),
    *((Scope.NODE, name) for name in ("inlet", "cpu_power", "cpu_temperature")),
    *((Scope.CARD, name) for name in ("memory_temperature", "tensor", "dram", "clock", "occupancy")),
)
"""What has room first, the most useful before the others."""
Columns = Mapping[str, Row]


class Sheet:
    """Everything of one kind: who has which slot, and each figure's track."""

    def __init__(self, packings: Mapping[str, Packing]) -> None:
        self.packings = packings
        self.slots: dict[str, int] = {}
        self.tracks: dict[str, Track] = {}
        self.seen: set[str] = set()
        """Figures that were reported at all; the others cost nothing."""
        self.refused: set[str] = set()
        """Figures there is no room for."""
        self._born: list[int] = []
        self._free: list[int] = []

    @property
    def width(self) -> int:
        """Slots a row has."""
        return len(self._born)

    def names(self, names: Iterable[str], step: int) -> None:
        """These are there from `step` on, and no others; what has gone leaves its slot to the next."""
        there = dict.fromkeys(names)
        for gone in self.slots.keys() - there:
            self._free.append(self.slots.pop(gone))
        for name in there:
            if name in self.slots:
                continue
            if self._free:
                slot = self._free.pop()
                self._born[slot] = step
            else:
                slot = len(self._born)
                # Nobody had it before: there is no past that is not its own.
                self._born.append(0)
            self.slots[name] = slot

    def blanks(self) -> dict[str, Row]:
        """A row for each figure that there is room for."""
        return {name: p.blank(self.width) for name, p in self.packings.items() if name not in self.refused}

    def put(self, step: int, columns: Columns) -> None:
        """A sample of everything; a figure nobody reports is left out."""
        for name, row in columns.items():
            packing = self.packings[name]
            if name not in self.seen:
                absent = packing.absent
                if all(code != code or code == absent for code in row):
                    continue
                self.seen.add(name)
            if name not in self.refused:
                self.tracks.setdefault(name, Track(packing)).put(step, row)

    def drop_from(self, step: int) -> None:
        """Forget samples from that step on; who came later than that is there from that step."""
        self._born = [min(born, step) for born in self._born]
        for track in self.tracks.values():
            track.drop_from(step)

    def refuse(self, figures: set[str]) -> None:
        """There is no room for these."""
        self.refused = figures
        for name in figures:
            self.tracks.pop(name, None)

    def value(self, name: str, figure: str, first: int, *, each: int) -> float | None:
        """What a figure of `name` was over the base step `first`: a sample, or with `each` of EACH a minute."""
        slot, track = self.slots.get(name), self.tracks.get(figure)
        if slot is None or track is None:
            return None
        born = self._born[slot]
        if each == EACH:
            return track.minute(first, slot, born)
        return track.at(first, slot) if first >= born else None


class Book:
    """The sheets, within `limit_bytes`. `since` is the first step that was recorded."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.sheets = {scope: Sheet(packings) for scope, packings in SHEETS.items()}
        self.since: int | None = None
        self.last = -1

    def begin(self, step: int) -> list[tuple[Track, int]]:
        """A sample of `step` comes: makes room, and says which tracks have which minute to fold.

        A clock that went back takes with it what was recorded ahead of it.
        """
        done = self.last // EACH
        if step <= self.last:
            for sheet in self.sheets.values():
                sheet.drop_from(step)
            self.since = min(self.since or step, step)
        elif self.since is None:
            self.since = step
        complete = 0 <= self.last < step and done < step // EACH
        self.last = step
        self._plan()
        return [(track, done) for sheet in self.sheets.values() for track in sheet.tracks.values()] if complete else []

    def needed(self) -> int:
        """Bytes once the rings of all that is kept are full."""
        return sum(self._cost(scope, name) for scope, name in RANKED if name not in self.sheets[scope].refused)

    @property
    def bytes(self) -> int:
        """Bytes that rows hold now."""
        return sum(track.bytes for sheet in self.sheets.values() for track in sheet.tracks.values())

    def _cost(self, scope: Scope, name: str) -> int:
        sheet = self.sheets[scope]
        return (sheet.packings[name].bytes * sheet.width + ROW_BYTES) * STEPS_KEPT if name in sheet.seen else 0

    def _plan(self) -> None:
        left = self.limit_bytes
        refused: dict[Scope, set[str]] = {scope: set() for scope in self.sheets}
        for scope, name in RANKED:
            cost = self._cost(scope, name)
            # Whatever comes after one that has no room has none either: the order is what an operator can rely on.
            if cost > left or (refused[scope] and name in self.sheets[scope].seen):
                refused[scope].add(name)
            else:
                left -= cost
        for scope, figures in refused.items():
            if figures != self.sheets[scope].refused:
                self.sheets[scope].refuse(figures)


def step_of(at: float) -> int:
    """The step a moment is in, Unix seconds."""
    return int(at // SHORT_S)
