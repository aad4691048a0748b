"""Sessions and prompts go where they were before, until others have much less to do."""

import json
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.meters import LOAD, ONLY, PREFIX, STICKY
from llmgw.core.routing import KeyRecord, ReplicaLoad, RoutedModel, RoutedReplica, Routing, Scoring
from llmgw.router.affinity import FINE_BLOCK, MAX_TABLES
from llmgw.router.breaker import Failure
from llmgw.router.choose import Chooser
from llmgw.router.health import HealthBook
from llmgw.router.hints import MAX_SESSION_BYTES, SESSION_HEADER, Hints
from llmgw.router.limits import PAUSE_FIRST_S
from llmgw.router.requests import read_fields
from llmgw.router.routes import Route
from llmgw.router.seats import MAX_BITS, Group
from llmgw.router.state import IndexedRoutes

KEY = KeyRecord(id="k1", name="one")
SYSTEM = "You are of help. " * 100


def replicas(*ids: str, model: str = "m") -> tuple[RoutedReplica, ...]:
    """Replicas of one model."""
    return tuple(RoutedReplica(id=name, model=model, endpoint=f"http://{name}:1") for name in ids)


FOUR = replicas("a", "b", "c", "d")


def hints(session: str = "", *said: str, key: KeyRecord = KEY, route: Route = Route.CHAT, **body: object) -> Hints:
    """What a request says that is part of a session, whose messages are `said`."""
    messages = [{"role": "user", "content": text} for text in said]
    raw = json.dumps({"model": "m", "messages": messages, "input": "".join(said) or "i"} | body).encode()
    headers = [(b"accept", b"*/*"), *([(SESSION_HEADER, session.encode())] if session else [])]
    return Hints(headers, key, read_fields(raw, route), route)


def ask(
    chooser: Chooser,
    hint: Hints,
    load: dict[str, int] | None = None,
    *,
    there: Sequence[RoutedReplica] = FOUR,
    tried: Sequence[str] = (),
    now: float = 0.0,
) -> tuple[str, str]:
    """Id of the replica that is chosen, and by what."""
    chosen = chooser.choose(there, load or {}, tried=tried, now=now, hints=hint)
    assert chosen is not None
    return chosen[0].id, chosen[1]


def new(scoring: Scoring | None = None, loads: dict[str, ReplicaLoad] | None = None) -> Chooser:
    """A chooser that follows the settings."""
    chooser = Chooser(HealthBook({}, {}), loads)
    chooser.follow(IndexedRoutes(Routing(revision="1", models=(), replicas=FOUR, scoring=scoring or Scoring())))
    return chooser


def test_a_session_stays_and_every_router_knows_where() -> None:
    one, other = new(), new()
    seen = Counter[str]()
    for number in range(200):
        place, by = ask(one, hints(f"s{number}"))
        assert by == STICKY
        seen[place] += 1
        assert ask(other, hints(f"s{number}", "other words"), {place: 3}) == (place, STICKY)
    assert set(seen) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("field", ["session_id", "prompt_cache_key", "user"])
def test_the_body_may_name_the_session_and_the_header_goes_first(field: str) -> None:
    chooser = new()
    fields: dict[str, object] = {field: "abc"}
    assert ask(chooser, hints(**fields)) == ask(chooser, hints("abc"))  # type: ignore[arg-type]
    for number in range(20):
        fields = {field: "something else"}
        assert ask(chooser, hints(f"s{number}", **fields)) == ask(chooser, hints(f"s{number}"))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "x" * (MAX_SESSION_BYTES + 1), None, 7, {"a": 1}, ["b"]])
def test_what_is_no_id_makes_no_session(value: object) -> None:
    assert ask(new(), hints(user=value))[1] == LOAD
    if isinstance(value, str):
        assert ask(new(), hints(value))[1] == LOAD


def test_another_teams_session_of_the_same_name_is_another() -> None:
    chooser = new()
    team, mate = KeyRecord(id="k2", name="two", team="t"), KeyRecord(id="k3", name="three", team="t")
    places = [[ask(chooser, hints(f"s{i}", key=key))[0] for i in range(60)] for key in (KEY, team, mate)]
    assert places[1] == places[2]
    assert sum(a == b for a, b in zip(places[0], places[1], strict=True)) < 30


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60)), st.text("0123456789", min_size=1, max_size=3))
def test_no_session_is_kept_where_there_is_much_more_to_do(load: dict[str, int], session: str) -> None:
    place, _ = ask(new(), hints(session), load)
    least = min(load.get(name, 0) for name in "abcd")
    assert load.get(place, 0) <= max(least + Scoring().load_margin, 1.25 * least)


def test_an_overloaded_replicas_sessions_go_to_the_next_of_each_and_come_back() -> None:
    chooser = new()
    homes = {f"s{i}": ask(chooser, hints(f"s{i}"))[0] for i in range(100)}
    hot = {"a": 20}
    elsewhere = {name: ask(chooser, hints(name), hot)[0] for name in homes}
    without_a = replicas("b", "c", "d")
    for name, home in homes.items():
        assert elsewhere[name] == (home if home != "a" else ask(chooser, hints(name), there=without_a)[0])
    assert {name: ask(chooser, hints(name))[0] for name in homes} == homes


def test_a_suspects_sessions_go_to_the_next_of_each_and_come_back() -> None:
    book = HealthBook({}, {})
    chooser = Chooser(book)
    homes = {f"s{i}": ask(chooser, hints(f"s{i}"))[0] for i in range(100)}
    trial = book.begin(FOUR[0], streamed=True, now=0.0)
    trial.failed(Failure("refused", at_once=True), 0.0)
    trial.close(0.0)
    for name, home in homes.items():
        place, _ = ask(chooser, hints(name), now=PAUSE_FIRST_S / 2)
        assert place == home if home != "a" else place != "a"
    assert ask(chooser, hints(next(n for n, h in homes.items() if h == "b")), now=PAUSE_FIRST_S) == ("a", LOAD)
    probe = book.begin(FOUR[0], streamed=True, now=PAUSE_FIRST_S)
    probe.answered(PAUSE_FIRST_S)
    probe.succeeded()
    probe.close(PAUSE_FIRST_S)
    assert {name: ask(chooser, hints(name), now=PAUSE_FIRST_S + 1.0)[0] for name in homes} == homes


def test_a_session_does_not_wait_for_a_slot_while_another_replica_has_one() -> None:
    loads = {name: ReplicaLoad(running=0, waiting=0, slots=2, at=time.time()) for name in "abcd"}
    chooser = new(loads=loads)
    home, _ = ask(chooser, hints("s"))
    assert ask(chooser, hints("s"), {home: 1})[0] == home
    assert ask(chooser, hints("s"), {home: 2})[0] != home
    assert ask(chooser, hints("s"), dict.fromkeys("abcd", 2))[0] == home


def test_a_retry_goes_to_the_next_in_the_sessions_order() -> None:
    chooser = new()
    home, _ = ask(chooser, hints("s"))
    others = tuple(r for r in FOUR if r.id != home)
    assert ask(chooser, hints("s"), tried=[home]) == ask(chooser, hints("s"), there=others)


def test_the_next_turn_goes_to_the_replica_that_read_the_ones_before() -> None:
    chooser = new()
    said = [SYSTEM + "one?"]
    place, by = ask(chooser, hints("", *said))
    assert by == LOAD
    for turn in range(10):
        said += [f"answer {turn} " * 20, f"question {turn}"]
        assert ask(chooser, hints("", *said), {place: 4}) == (place, PREFIX)


def test_prompts_that_differ_early_or_are_short_go_by_load() -> None:
    chooser = new()
    for number in range(8):
        assert ask(chooser, hints("", f"{number} {SYSTEM}"))[1] == LOAD
        assert ask(chooser, hints("", "x" * (FINE_BLOCK // 2)))[1] == LOAD
    ask(chooser, hints("", SYSTEM[:FINE_BLOCK] + "a" * 2048))
    assert ask(chooser, hints("", SYSTEM[:FINE_BLOCK] + "b" * 2048))[1] == LOAD


def test_of_those_that_read_a_common_beginning_the_least_loaded_is_taken() -> None:
    chooser = new()
    first = ask(chooser, hints("", SYSTEM))[0]
    second = ask(chooser, hints("", SYSTEM), {first: 9})
    assert second[1] == LOAD
    assert ask(chooser, hints("", SYSTEM + "x"), {first: 2, second[0]: 1}) == (second[0], PREFIX)
    assert ask(chooser, hints("", SYSTEM + "x"), {first: 1, second[0]: 2}) == (first, PREFIX)


def test_another_teams_prompt_leads_nowhere() -> None:
    chooser = new()
    place, _ = ask(chooser, hints("", SYSTEM))
    assert ask(chooser, hints("", SYSTEM, key=KeyRecord(id="k2", name="two")))[1] == LOAD
    assert ask(chooser, hints("", SYSTEM)) == (place, PREFIX)


def test_only_what_makes_an_engine_write_has_a_prefix() -> None:
    chooser = new()
    for _ in range(3):
        assert ask(chooser, hints("", SYSTEM, route=Route.EMBEDDINGS))[1] == LOAD
    assert ask(chooser, hints("s", SYSTEM, route=Route.EMBEDDINGS))[1] == STICKY


def test_a_replica_that_moved_has_read_nothing() -> None:
    chooser = new()
    place, _ = ask(chooser, hints("", SYSTEM))
    moved = tuple(
        RoutedReplica(id=r.id, model="m", endpoint=f"{r.endpoint}1" if r.id == place else r.endpoint) for r in FOUR
    )
    assert ask(chooser, hints("", SYSTEM), there=moved)[1] == LOAD


def test_replicas_that_come_and_go_without_end_leave_nothing_behind() -> None:
    chooser, group = new(), Group()
    for number in range(2 * MAX_BITS):
        moved = (*FOUR[:3], RoutedReplica(id="d", model="m", endpoint=f"http://d:{number}"))
        forgets = group.follow(moved)
        assert not forgets or group.seats[0].bit == 1
        assert max(seat.bit for seat in group.seats).bit_length() <= MAX_BITS
        assert len({seat.bit for seat in group.seats}) == 4
        place, _ = ask(chooser, hints("", SYSTEM), there=moved)
        assert ask(chooser, hints("", SYSTEM), there=moved) == (place, PREFIX)


def test_settings_turn_each_off() -> None:
    chooser = new(Scoring(sticky=False))
    assert ask(chooser, hints("s", SYSTEM))[1] == LOAD
    assert ask(chooser, hints("s", SYSTEM))[1] == PREFIX
    chooser = new(Scoring(prefix=False))
    assert [ask(chooser, hints("", SYSTEM))[1] for _ in range(2)] == [LOAD, LOAD]
    turns = new(Scoring(load=False, sticky=False, prefix=False))
    assert [ask(turns, hints("s", SYSTEM), {"a": 50})[0] for _ in range(8)] == list("abcdabcd")
    strict = new(Scoring(load_margin=0.0))
    home, _ = ask(strict, hints("s"))
    assert ask(strict, hints("s"), {home: 1})[0] != home


def test_one_replica_is_the_only_one() -> None:
    assert ask(new(), hints("s", SYSTEM), there=FOUR[:1]) == ("a", ONLY)
    assert ask(new(), hints("s"), there=FOUR[:1], tried=["a"]) == ("a", ONLY)


def test_models_that_are_gone_are_forgotten() -> None:
    chooser = Chooser(HealthBook({}, {}))
    names = [f"m{i}" for i in range(2 * MAX_TABLES)]
    there = {name: replicas("a", "b", model=name) for name in names}
    models = tuple(RoutedModel(name=name) for name in names)
    every = tuple(r for found in there.values() for r in found)
    chooser.follow(IndexedRoutes(Routing(revision="1", models=models, replicas=every)))
    for name in names:
        ask(chooser, hints("", SYSTEM), there=there[name])
    assert ask(chooser, hints("", SYSTEM), there=there[names[0]])[1] == LOAD
    assert ask(chooser, hints("", SYSTEM), there=there[names[-1]])[1] == PREFIX
    chooser.follow(IndexedRoutes(Routing(revision="2", models=models[:1], replicas=there[names[0]])))
    chooser.follow(IndexedRoutes(Routing(revision="3", models=models, replicas=every)))
    assert ask(chooser, hints("", SYSTEM), there=there[names[-1]])[1] == LOAD
