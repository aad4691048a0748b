"""Sessions: the same replica by every router, and no more of them move than must."""

import json
import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from llmgw.router.ring import distance, replica_mark, session_mark

IDS = st.lists(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12), unique=True)
SESSIONS = [b"s%d" % i for i in range(200)]


def nearest(session: bytes, ids: list[str], weights: dict[str, float] | None = None, scope: str = "team t") -> str:
    """The replica a session belongs to."""
    mark = session_mark(scope, session)
    return min(ids, key=lambda name: distance(mark, replica_mark(name), (weights or {}).get(name, 1.0)))


@given(IDS.filter(lambda ids: len(ids) >= 2), st.data())
def test_a_replica_that_leaves_moves_only_its_own_sessions(ids: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(ids))
    left = [name for name in ids if name != gone]
    for session in SESSIONS:
        before = nearest(session, ids)
        if before != gone:
            assert nearest(session, left) == before


def test_one_in_n_sessions_moves_to_a_replica_that_comes() -> None:
    ids = [f"m-{i}" for i in range(8)]
    sessions = [b"session-%d" % i for i in range(20_000)]
    moved = Counter(after for s in sessions if (after := nearest(s, [*ids, "m-new"])) != nearest(s, ids))
    assert set(moved) == {"m-new"}
    assert 0.9 < moved["m-new"] / (len(sessions) / 9) < 1.1


def test_sessions_are_shared_by_weight() -> None:
    ids, weights = ["a", "b", "c"], {"a": 1.0, "b": 2.0, "c": 5.0}
    got = Counter(nearest(b"session-%d" % i, ids, weights) for i in range(16_000))
    assert all(0.9 < got[name] / (2000 * weights[name]) < 1.1 for name in ids), got


def test_another_scope_is_another_session() -> None:
    ids = [f"m-{i}" for i in range(8)]
    same = sum(nearest(s, ids) == nearest(s, ids, scope="team u") for s in SESSIONS)
    assert same < len(SESSIONS) / 4


def test_processes_agree_whatever_their_hash_seed() -> None:
    asked = (
        "import json, tests.unit.test_router_ring as t;"
        "print(json.dumps([t.nearest(s, [f'm-{i}' for i in range(5)]) for s in t.SESSIONS]))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", asked], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert json.loads(told[0]) == [nearest(s, [f"m-{i}" for i in range(5)]) for s in SESSIONS]
