"""Keys with limits and counters for tests, and routers that are told apart within one process."""

from dataclasses import dataclass, field
from pathlib import Path

from llmgw.core.limits import Budget, Limits, Period, ScopeKind, ScopeRecord, Spending
from llmgw.core.processes import start_time
from llmgw.core.routing import KeyRecord
from llmgw.router.counter_file import H_SLOTS_HIGH, H_USED, ROW_BYTES, ROWS_AT, SLOT_WORDS, SLOTS_AT
from llmgw.router.counters import Counters
from llmgw.router.limiter import Limiter, Reservation
from llmgw.router.ports import Refusal
from llmgw.router.rows import Moment, Row
from llmgw.router.scopes import Chain, Demand, ScopeBook
from llmgw.router.slots import boot_number

NOON = 1_893_499_200.0
"""2030-01-01 12:00:00 UTC."""
UNLIMITED = Limits()
NOTHING = Spending()
ROOMY = Limits(rpm=1_000_000, tpm=1_000_000_000, parallel=1_000_000)


@dataclass
class Clock:
    """Unix seconds that a test sets."""

    at: float = NOON

    def __call__(self) -> float:
        """As `time.time`."""
        return self.at


def month(micros: int) -> tuple[Budget, ...]:
    """A budget a month."""
    return (Budget(amount_micros=micros, period=Period.MONTH),)


def key(
    name: str = "k1",
    *,
    limits: Limits = UNLIMITED,
    budgets: tuple[Budget, ...] = (),
    spent: Spending = NOTHING,
    team: str = "",
) -> KeyRecord:
    """A key's record."""
    return KeyRecord(id=name, name=f"name of {name}", limits=limits, budgets=budgets, spent=spent, team=team)


def scope(
    kind: ScopeKind,
    name: str,
    *,
    limits: Limits = UNLIMITED,
    budgets: tuple[Budget, ...] = (),
    spent: Spending = NOTHING,
    tenant: str = "",
) -> ScopeRecord:
    """A team's or tenant's record."""
    return ScopeRecord(kind=kind, id=name, limits=limits, budgets=budgets, spent=spent, tenant=tenant)


def chain_of(record: KeyRecord, *above: ScopeRecord) -> Chain:
    """The scopes of a key under these teams and tenants."""
    book = ScopeBook()
    book.learn(above)
    chain = book.chain(record)
    assert chain is not None
    return chain


def demand(tokens: int = 0, *, output: int = 0, worst: int = 0, asked: bool = True) -> Demand:
    """A request that takes this much."""
    return Demand(tokens, output, asked, 1, worst)


def refused(limiter: Limiter, chain: Chain, wanted: Demand) -> Refusal | None:
    """The refusal; none when it was let in (and forgotten)."""
    try:
        limiter.admit(chain, wanted)
    except Refusal as refusal:
        return refusal
    return None


@dataclass
class Figures:
    """What a scope's row says."""

    requests: int
    tokens: int
    last_requests: int
    last_tokens: int
    day_micros: int
    month_micros: int
    open: int
    reserved: int


def figures(counters: Counters, chain: Chain, place: int, at: float) -> Figures:
    """Of the scope at this place of the chain, as of `at`."""
    moment = Moment()
    moment.move(at)
    found = chain.scopes[place]
    base = counters.find(found.hash, budgeted=found.budgeted, now=int(at))
    assert base is not None
    row = Row(counters, base, found.hash, None)
    counts = row.load(moment)
    assert counts is not None
    requests, tokens, last, last_tokens, _, day_micros, _, month_micros, _ = counts
    return Figures(
        requests, tokens, last, last_tokens, day_micros, month_micros, row.open_requests, row.reserved_micros
    )


def raw_rows(counters: Counters) -> bytes:
    """Every byte of the rows given out."""
    return bytes(counters.memory[ROWS_AT : ROWS_AT + counters.words[H_USED] * ROW_BYTES])


@dataclass
class FakeRouter:
    """A router of its own as far as the table knows, in this process."""

    counters: Counters
    limiter: Limiter
    chains: dict[str, Chain] = field(default_factory=dict)
    """By key; like a real router's, they are of one limiter only."""

    def admit(self, record: KeyRecord, above: ScopeRecord, wanted: Demand) -> Reservation:
        """A request with this key under this team; raises Refusal."""
        chain = self.chains.get(record.id)
        if chain is None:
            chain = self.chains[record.id] = chain_of(record, above)
        return self.limiter.admit(chain, wanted)

    @classmethod
    def start(cls, path: Path, slot: int, clock: Clock, pid: int) -> "FakeRouter":
        """Take this very slot for the living process `pid`."""
        counters = Counters.open(path)
        at, words = SLOTS_AT + slot * SLOT_WORDS, counters.words
        words[at + 1], words[at + 2], words[at] = start_time(pid) or 0, boot_number(), pid
        words[H_SLOTS_HIGH] = max(words[H_SLOTS_HIGH], slot + 1)
        counters.slot = slot
        return cls(counters, Limiter(counters, clock=clock))

    def die(self) -> None:
        """Be gone, as if killed: the process in the slot is another than the one that took it."""
        self.counters.words[SLOTS_AT + self.counters.slot * SLOT_WORDS + 1] -= 1
        self.counters.close()
