"""Acting: what is possible is there, what is dangerous asks in figures, and the answer is a sentence."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from console.actions import consequences
from console.actions.handler import allowed, possible
from console.actions.handlers import HANDLERS
from console.lines import SCHEMES, candidates, parse_line
from console.places import Subject
from console.state.cluster import ClusterState
from llmgw.api.actions import ACTIONS, BY_ID, Danger, Target
from llmgw.api.targets import ServerTarget
from llmgw.api.types import ModelResult
from tests.console.harness import console_with, screen_text, shown, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import NOW, small_fleet

STATE, _ = ClusterState().apply(small_fleet(), at=NOW)


def model(key: str) -> Subject:
    return Subject(target=Target.MODEL, key=key)


def ids(*subjects: Subject) -> set[str]:
    return {handler.id for handler in possible(HANDLERS, STATE, subjects) if Target.CLUSTER not in handler.about}


def test_handlers_are_of_the_registry_and_do_exactly_one_thing() -> None:
    assert len({handler.id for handler in HANDLERS}) == len(HANDLERS)
    for handler in HANDLERS:
        assert handler.action_id in BY_ID
        assert sum((handler.do is not None, handler.opens is not None, bool(handler.form))) == 1
        if handler.action.danger is not Danger.NONE and handler.do is not None:
            assert handler.warn is not None, f"{handler.id} is dangerous and does not say what it does"


def test_keys_of_one_target_are_unique() -> None:
    for target in Target:
        keys = [a.key for a in ACTIONS if a.key and a.target is target]
        assert len(set(keys)) == len(keys), target
    for target in Target:
        bound = {(h.action_id, h.key) for h in HANDLERS if h.key and target in h.about and not h.views}
        assert len({key for _, key in bound}) == len(bound), target


def test_only_what_makes_sense_for_a_row_is_possible() -> None:
    assert {"model.stop", "model.scale", "model.remove"} <= ids(model("qwen2.5-7b"))
    assert "model.start" not in ids(model("qwen2.5-7b"))
    assert "model.start" in ids(model("mixtral-8x22b"))
    assert "model.stop" not in ids(model("mixtral-8x22b"))
    assert "node.uncordon" in ids(Subject(target=Target.NODE, key="gpu06"))
    assert "node.cordon" not in ids(Subject(target=Target.NODE, key="gpu06"))
    both = ids(model("qwen2.5-7b"), model("old-llama"))
    assert "model.stop" in both
    assert "model.explain" not in both, "a page is about one thing"
    assert ids() == set()


def test_roles_and_read_only_take_actions_away() -> None:
    by_id = {handler.id: handler for handler in HANDLERS}
    assert not allowed(by_id["model.stop"], role="viewer", read_only=False)
    assert not allowed(by_id["model.stop"], role="admin", read_only=True)
    assert allowed(by_id["model.stop"], role="operator", read_only=False)
    assert allowed(by_id["model.explain"], role="viewer", read_only=True)
    assert not allowed(by_id["model.stop"], role="emperor", read_only=False), "a role nobody knows may look"


def test_consequences_are_figures() -> None:
    said = consequences.stops_models(STATE, ("qwen3-coder-30b",))
    assert (
        said == "Stops 6 replicas, frees 12 cards; 56 requests in flight may end early. Its entry stays in the catalog."
    )
    assert (
        consequences.restarts_replicas(STATE, ("r-gpu01-1",))
        == "Restarts 1 replica; 7 requests in flight may end early."
    )
    assert "deletes 188 GB of weights" in consequences.purges_models(STATE, ("glm-5.2",))


@pytest.mark.parametrize(
    ("line", "action", "rest"),
    [
        ("stop qwen2.5-7b", "model.stop", ("qwen2.5-7b",)),
        ("model stop a", "model.stop", ("a",)),
        ("cordon gpu01", "node.cordon", ("gpu01",)),
        ("model scale a 1 2", "model.scale", ("a", "1", "2")),
    ],
)
def test_the_line_spells_actions_as_ctl_does(line: str, action: str, rest: tuple[str, ...]) -> None:
    parsed = parse_line(line)
    assert parsed.handler is not None
    assert (parsed.handler.action_id, parsed.rest) == (action, rest)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("model sim", "'models'"),
        ("node x", "'nodes'"),
        ("modles", "'models'"),
        ("qiut", "'quit'"),
        ("ser", "'series' or 'serve'"),
    ],
)
def test_a_slip_on_the_line_is_answered_with_what_would_have_worked(line: str, meant: str) -> None:
    complaint = parse_line(line).complaint
    assert complaint.startswith(f"{line.split()[0]!r} is neither a view nor an action; did you mean ")
    assert meant in complaint


def test_a_word_like_no_other_is_answered_with_the_views() -> None:
    complaint = parse_line("frobnicate").complaint
    assert "is neither a view (overview, models, " in complaint
    assert "did you mean" not in complaint


def test_the_line_offers_words_and_then_names() -> None:
    assert "models" in candidates("mod", STATE)
    assert candidates("nodes gpu0", STATE)[0] == "nodes gpu01"
    assert "stop old-llama" in candidates("stop old", STATE)
    assert candidates("theme l", STATE) == ["theme light"]
    assert candidates("ctx pro", STATE, ["prod", "lab"]) == ["ctx prod"]


@pytest.mark.parametrize("verb", ["serve", "model serve", "weights fetch"])
def test_the_line_completes_a_source_first_to_its_scheme_and_then_to_what_is_known(verb: str) -> None:
    known = sorted({*STATE.weights, *(model.source for model in STATE.models.values())})
    assert len(known) > 1
    assert candidates(f"{verb} ", STATE)[:5] == [f"{verb} {scheme}" for scheme in SCHEMES]
    assert candidates(f"{verb} ht", STATE) == [f"{verb} https://"]
    assert candidates(f"{verb} hf:", STATE) == [f"{verb} hf:", *(f"{verb} {s}" for s in known if s.startswith("hf:"))]
    assert candidates(f"{verb} {known[-1]} ", STATE) == []
    row = msgspec.structs.replace(next(iter(STATE.models.values())), source="hf:a/b c\x1b[2J")
    rough = replace(STATE, models={"m": row}, weights={})
    assert candidates(f"{verb} hf:", rough) == [f"{verb} hf:"]


def socket_of(path: Path) -> ServerTarget:
    return ServerTarget(socket=path)


@pytest.mark.asyncio
async def test_stopping_asks_with_cancel_first_and_then_says_what_the_server_said(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as feed:
        sentence = ModelResult(message="old-llama: 4 replicas end")
        feed.answers["/api/v1/models/old-llama/stop"] = msgspec.json.encode(sentence)
        console = console_with(small_fleet(), start="models", target=socket_of(tmp_path / "s"))
        async with shown(console) as pilot:
            await pilot.press("slash", *"old-llama", "enter", "x")
            await until(lambda: "Stops 4 replicas" in screen_text(console))
            await pilot.press("enter")
            await pilot.pause()
            assert feed.calls == [], "enter on what is chosen at first changes nothing"
            await pilot.press("x", "right", "enter")
            await until(lambda: bool(console._notifications))
            assert [notice.message for notice in console._notifications] == ["old-llama: 4 replicas end"]
            assert [(method, path) for method, path, _ in feed.calls] == [("POST", "/api/v1/models/old-llama/stop")]


@pytest.mark.asyncio
async def test_removing_wants_the_name_typed(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as feed:
        console = console_with(small_fleet(), start="models", target=socket_of(tmp_path / "s"))
        async with shown(console) as pilot:
            await pilot.press("slash", *"old-llama", "enter", "D", *"old", "enter")
            await until(lambda: "that is not it; nothing was changed" in screen_text(console))
            assert feed.calls == []
            await pilot.press(*"-llama", "enter")
            await until(lambda: bool(console._notifications))
            (method, path, _) = feed.calls[0]
            assert (method, path) == ("DELETE", "/api/v1/models/old-llama?purge=false")
            (notice,) = console._notifications
            assert "is not recorded" in notice.message, "a refusal is a sentence too"
            assert notice.severity == "error"


@pytest.mark.asyncio
async def test_marked_rows_are_acted_on_together(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as feed:
        console = console_with(small_fleet(), start="nodes", target=socket_of(tmp_path / "s"))
        async with shown(console) as pilot:
            await pilot.press("space", "space", "x")
            await until(lambda: len(feed.calls) == 2)
            assert [path for _, path, _ in feed.calls] == ["/api/v1/nodes/gpu01/cordon", "/api/v1/nodes/gpu02/cordon"]


@pytest.mark.asyncio
async def test_read_only_makes_dangerous_keys_do_nothing_at_all() -> None:
    console = console_with(small_fleet(), start="models", read_only=True)
    async with shown(console) as pilot:
        assert "read-only" in screen_text(console)
        await pilot.press("x", "D", "r")
        await pilot.pause()
        assert len(console.screen_stack) == 2
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert console.read_only, "started with --read-only it stays"
        await pilot.press("colon", *"stop old-llama", "enter")
        await pilot.pause()
        assert len(console.screen_stack) == 2
        assert any("read-only" in notice.message for notice in console._notifications)


@pytest.mark.asyncio
async def test_viewers_start_read_only_and_operators_may_choose() -> None:
    console = console_with(small_fleet(role="viewer"))
    async with shown(console) as pilot:
        assert console.read_only
        await pilot.press("ctrl+r")
        assert console.read_only
    console = console_with(small_fleet(role="operator"))
    async with shown(console) as pilot:
        assert not console.read_only
        await pilot.press("ctrl+r")
        assert console.read_only


@pytest.mark.asyncio
async def test_quitting_the_demo_asks_whether_to_stop_it() -> None:
    from console.app import Console, Ending
    from tests.console.harness import NOWHERE, fed

    console = Console(NOWHERE, store=fed([small_fleet()]), follow=False, demo=True, clock=lambda: NOW)
    async with shown(console) as pilot:
        await pilot.press("q")
        await until(lambda: "goes on without the console" in screen_text(console))
        await pilot.press("enter")
        await pilot.pause()
        assert console.return_value is None, "staying is chosen at first"
        await pilot.press("q", "right", "right", "enter")
        await pilot.pause()
    assert console.return_value is Ending.STOP
