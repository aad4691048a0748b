"""The live table: whatever happens in whatever order, a reader that reads once more has what the table has."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.api.watch import Delta, Snapshot
from llmgw.control.live_table import Cursor, LiveTable, Wanted

TOPICS = ("nodes", "figures")
KEYS = ("a", "b", "c", "d", "e")
WANTED: tuple[Wanted, ...] = (
    {"nodes": None, "figures": None},
    {"figures": frozenset({"a", "c"})},
    {"nodes": None, "figures": frozenset()},
)


class Row(msgspec.Struct, frozen=True):
    """A row to tell apart by its value."""

    value: int


@dataclass
class Follower:
    """A reader as a client is one: it keeps rows, applies messages, and may lose its connection."""

    table: LiveTable
    wanted: Wanted
    cursor: Cursor = field(init=False)
    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    epoch: str | None = None
    rev: int | None = None
    snapshots: int = 0

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        """Connect, or connect again from where it was."""
        self.cursor = Cursor(self.table, self.wanted, epoch=self.epoch, since=self.rev)
        self._apply(self.cursor.first(now=0.0, actor="me", role="viewer"))

    def read(self) -> None:
        """Take one message, if there is one."""
        message = self.cursor.take(now=0.0, actor="me", role="viewer")
        if message is not None:
            self._apply(message)

    def _apply(self, message: Snapshot | Delta) -> None:
        if isinstance(message, Snapshot):
            self.snapshots += 1
            self.epoch, self.rows = message.epoch, {}
            assert message.rows.keys() == self.wanted.keys()
        for topic, names in (message.gone if isinstance(message, Delta) else {}).items():
            for name in names:
                self.rows.setdefault(topic, {}).pop(name, None)
        for topic, rows in message.rows.items():
            self.rows.setdefault(topic, {}).update({key: bytes(row) for key, row in rows.items()})
        self.rev = message.rev

    def agrees(self) -> bool:
        """Whether it has what the table has of its topics and keys."""
        have = {topic: rows for topic, rows in self.rows.items() if rows}
        want = {
            topic: {key: bytes(row) for key, row in rows.items()}
            for topic, rows in self.table.rows(self.wanted).items()
            if rows
        }
        return have == want


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(TOPICS), st.sampled_from(KEYS), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.sampled_from(TOPICS), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.sampled_from(KEYS), st.integers(0, 2)),
        st.tuples(st.sampled_from(["read", "resume"]), st.just(""), st.just(""), st.integers(0, 2)),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(steps=steps, room=st.integers(1, 6))
def test_any_interleaving_ends_with_the_reader_equal_to_the_table(
    steps: list[tuple[str, str, str, int]], room: int
) -> None:
    table = LiveTable(TOPICS, max_tombstones=room)
    followers = [Follower(table, wanted) for wanted in WANTED]
    for step, topic, key, value in steps:
        match step:
            case "put":
                table.put(topic, key, Row(value))
            case "remove":
                table.remove(topic, key)
            case "publish":
                table.publish(topic, {k: Row(value) for k in KEYS if k <= key})
            case "read":
                followers[value].read()
                assert followers[value].agrees()
            case "resume":
                followers[value].connect()
                assert followers[value].agrees()
    for follower in followers:
        follower.read()
        assert follower.agrees()


def test_the_same_row_again_is_no_change() -> None:
    table = LiveTable(TOPICS)
    assert table.put("nodes", "a", Row(1))
    rev = table.rev
    assert not table.put("nodes", "a", Row(1))
    assert not table.remove("nodes", "b")
    assert table.rev == rev


def test_a_slow_reader_gets_the_newest_version_once_and_keeps_nothing_waiting() -> None:
    table = LiveTable(TOPICS)
    slow = Follower(table, {"nodes": None, "figures": None})
    for value in range(10_000):
        table.put("nodes", "a", Row(value))
    message = slow.cursor.take(now=0.0, actor="me", role="viewer")
    assert isinstance(message, Delta)
    assert {key: bytes(row) for key, row in message.rows["nodes"].items()} == {"a": b'{"value":9999}'}
    assert slow.cursor.take(now=0.0, actor="me", role="viewer") is None


def test_a_reader_behind_what_is_remembered_gets_everything_anew() -> None:
    table = LiveTable(TOPICS, max_tombstones=2)
    reader = Follower(table, {"nodes": None})
    for key in KEYS:
        table.put("nodes", key, Row(1))
    reader.read()
    for key in KEYS[:2]:
        table.remove("nodes", key)
    reader.read()
    assert reader.snapshots == 1
    for key in KEYS[2:]:
        table.remove("nodes", key)
    reader.read()
    assert reader.snapshots == 2
    assert reader.agrees()


def test_a_reader_continues_only_the_same_subscription_of_the_same_run() -> None:
    table = LiveTable(TOPICS)
    table.put("nodes", "a", Row(1))
    table.put("figures", "a", Row(1))
    before = Follower(table, {"nodes": None, "figures": frozenset("a")})
    before.connect()
    assert before.snapshots == 1
    for wanted in ({"nodes": None, "figures": frozenset("b")}, {"nodes": None}, {"nodes": None, "figures": None}):
        cursor = Cursor(table, wanted, epoch=before.epoch, since=before.rev)
        assert isinstance(cursor.first(now=0.0, actor="me", role="viewer"), Snapshot)
    other = Cursor(LiveTable(TOPICS), before.wanted, epoch=before.epoch, since=before.rev)
    assert isinstance(other.first(now=0.0, actor="me", role="viewer"), Snapshot)


@pytest.mark.parametrize("since", [-1, 2, 10**15])
def test_a_revision_that_never_was_is_not_continued(since: int) -> None:
    table = LiveTable(TOPICS)
    table.put("nodes", "a", Row(1))
    epoch = Cursor(table, {"nodes": None}).epoch
    cursor = Cursor(table, {"nodes": None}, epoch=epoch, since=since)
    assert isinstance(cursor.first(now=0.0, actor="me", role="viewer"), Snapshot)


def test_removals_are_remembered_up_to_the_limit_only() -> None:
    table = LiveTable(TOPICS, max_tombstones=10)
    for number in range(1000):
        table.put("nodes", str(number), Row(1))
        table.remove("nodes", str(number))
    assert len(table.removed("nodes", None, 0)) == 10
    assert not table.reaches_back({"nodes": None}, 0)
    assert table.reaches_back({"figures": None}, 0)
