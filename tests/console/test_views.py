"""Moving about: keys, the `:` line, filters, history, pages and what each says when there is nothing to show."""

import pytest

from console.places import Place, Subject, Trail
from console.state.store import Link
from llmgw.api.actions import Target
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell, until
from tests.support.fleet_rows import NOW, delta, empty_cluster, model_row, played, replica_row, small_fleet

MODEL = Place(view="model", subject=Subject(target=Target.MODEL, key="glm-5.2"))


def test_the_trail_goes_back_and_forth_like_a_browser() -> None:
    home, models = Place(view="overview"), Place(view="models")
    trail = Trail(here=home).go(models).go(MODEL)
    assert trail.back().here == models
    assert trail.back().forward().here == MODEL
    assert trail.back().back().back().here == home
    assert trail.back().go(home).forward().here == home, "what was after is forgotten"
    assert trail.go(MODEL) is trail


@pytest.mark.asyncio
async def test_digits_change_views_and_history_leads_back() -> None:
    console = console_with(small_fleet())
    async with shown(console) as pilot:
        await pilot.press("2")
        await until(lambda: console.main.trail.here.view == "models" and console.main.view is not None)
        assert "models · 7" in screen_text(console)
        await pilot.press("down", "enter")
        await until(lambda: console.main.trail.here == MODEL)
        await pilot.pause()
        assert "model glm-5.2" in screen_lines(console)[1]
        assert "61% of 188 GB" in screen_text(console)
        await pilot.press("escape")
        await until(lambda: console.main.trail.here.view == "models")
        await pilot.press("right_square_bracket")
        await until(lambda: console.main.trail.here == MODEL)
        await pilot.press("left_square_bracket", "left_square_bracket")
        await until(lambda: console.main.trail.here.view == "overview")
        await pilot.press("escape")
        assert console.main.trail.here.view == "overview", "a tab is where escape ends"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("columns", "tabs", "beside"),
    [
        (120, " 1 Overview  2 Models  3 Replicas  4 Nodes ", " 1 Overview  2 Models  3 Replicas  4 Nodes "),
        (
            80,
            " 1Overview 2 Models  3Replicas 4Nodes 5GPUs 6Monitor 7Weights 8Keys 0Audit",
            " 1 2 Models  3 4 5 6 7 8 0 ",
        ),
        (40, " 1 2 Models  3 4 5 6 7 8 0", " 1 2 Models  3 4 5 6 7 8"),
    ],
)
async def test_tabs_close_up_and_keep_their_digits_and_no_word_is_cut(columns: int, tabs: str, beside: str) -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console, size=(columns, 24)) as pilot:
        assert screen_lines(console)[1].startswith(tabs)
        await pilot.press("down", "enter")
        await until(lambda: console.main.trail.here == MODEL)
        await pilot.pause()
        line = screen_lines(console)[1]
        assert line.startswith(beside)
        assert line.endswith(" model glm-5.2 "), "a page's name is whole"


@pytest.mark.asyncio
async def test_the_cursor_and_the_filter_of_a_view_are_there_when_one_comes_back() -> None:
    console = console_with(small_fleet())
    async with shown(console) as pilot:
        await pilot.press("3", "slash", *"node:gpu03", "enter", "down", "down")
        await until(lambda: "replicas · 4 of 19" in screen_text(console))
        (before,) = console.main.subjects()
        await pilot.press("4", "3")
        await pilot.pause()
        assert console.main.subjects() == (before,)
        assert "/node:gpu03" in screen_text(console)
        await pilot.press("escape")
        await pilot.pause()
        assert "replicas · 19" in screen_text(console)
        assert console.main.subjects() == (before,), "the cursor stays with its row"


@pytest.mark.asyncio
async def test_the_filter_works_while_it_is_typed_and_escape_takes_it_back() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("slash", *"glm")
        await pilot.pause()
        assert "models · 2 of 7" in screen_text(console)
        await pilot.press("escape")
        await pilot.pause()
        assert "models · 7" in screen_text(console)
        await pilot.press("slash", *"nothing-like-it", "enter")
        await pilot.pause()
        assert "nothing matches nothing-like-it" in screen_text(console)
        assert "esc shows all" in screen_text(console)


@pytest.mark.asyncio
async def test_the_command_line_completes_remembers_and_goes() -> None:
    console = console_with(small_fleet())
    async with shown(console) as pilot:
        await pilot.press("colon", *"nodes gpu0", "tab", "enter")
        await until(lambda: console.main.trail.here.view == "node")
        assert console.main.trail.here.key == "gpu01"
        await pilot.press("colon", *"replicas state:failed", "enter")
        await until(lambda: "replicas · 1 of 19" in screen_text(console))
        await pilot.press("colon", "up", "up", "enter")
        await until(lambda: console.main.trail.here.view == "node")
        await pilot.press("colon", *"frobnicate", "enter")
        await until(lambda: bool(console._notifications))
        (said,) = [notice.message for notice in console._notifications]
        assert "'frobnicate' is neither a view" in said
        assert console.main.trail.here.view == "node"


@pytest.mark.asyncio
async def test_the_palette_runs_what_is_chosen() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("ctrl+p", *"replicas views")
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "replicas")


@pytest.mark.asyncio
async def test_help_lists_what_can_be_pressed_here_and_nothing_else() -> None:
    console = console_with(small_fleet(role="viewer"), start="models")
    async with shown(console, size=(120, 60)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = screen_text(console)
        assert "why a model is where it is" in text
        assert "kept until esc" in text
        assert "remove" not in text, "absent for a viewer, not refused"


@pytest.mark.asyncio
async def test_attention_leads_on_with_its_own_key() -> None:
    console = console_with(small_fleet())
    async with shown(console) as pilot:
        text = screen_text(console)
        assert "needs attention · 4 · 1 on the way" in text
        assert "e explain" in text
        await pilot.press("e")
        await until(lambda: console.main.trail.here.view == "explain")
        assert console.main.trail.here.key == "glm-5.2-air"


@pytest.mark.asyncio
async def test_what_changes_is_shown_a_frame_later_and_the_cursor_stays() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("end")
        (before,) = console.main.subjects()
        await tell(
            console,
            pilot,
            delta(
                {"models": {"aaa": model_row("aaa", "failed", ready=0, message="no such file")}},
                {"models": ("old-llama",)},
            ),
        )
        assert console.main.subjects() == (before,)
        text = screen_text(console)
        assert "old-llama" not in text
        assert "✗ failed" in text


@pytest.mark.asyncio
async def test_a_page_says_when_what_it_is_about_is_gone() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "model")
        await tell(console, pilot, delta({}, {"models": ("glm-5.2-air",)}))
        assert "model glm-5.2-air is not there any more. esc goes back." in screen_text(console)


@pytest.mark.asyncio
@pytest.mark.parametrize("start", ["overview", "models", "replicas", "nodes"])
async def test_before_the_first_word_a_view_says_whom_it_asks(start: str) -> None:
    waiting = Link(state="connecting", since=NOW)
    console = console_with(start=start, link=waiting)
    async with shown(console):
        assert "asking unix:/nowhere/berlin-lab/admin.sock…" in screen_text(console)
        assert "connecting" in screen_lines(console)[0]
    down = Link(state="connecting", since=NOW, reason="nothing listens at unix:/x: the server is down")
    console = console_with(start=start, link=down)
    async with shown(console):
        assert "nothing listens at unix:/x: the server is down" in screen_text(console)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("overview", "No node has joined yet. 4 and then n lets one join."),
        ("models", "s serves one"),
        ("replicas", "No replica runs."),
        ("nodes", "No node has joined."),
    ],
)
async def test_an_empty_view_names_the_next_key(start: str, said: str) -> None:
    console = console_with(empty_cluster(), start=start)
    async with shown(console, size=(80, 24)):
        assert said in screen_text(console)


@pytest.mark.asyncio
async def test_a_cluster_without_nodes_is_asked_nothing_more_once_it_is_heard() -> None:
    console = console_with(start="overview")
    async with shown(console) as pilot:
        assert screen_text(console).count("asking ") == 2
        await tell(console, pilot, empty_cluster())
        assert "asking " not in screen_text(console)


@pytest.mark.asyncio
async def test_a_lost_connection_dims_what_is_there_and_says_how_old_it_is() -> None:
    lost = Link(state="lost", since=NOW - 41, reason="the server is down")
    console = console_with(small_fleet(), link=lost)
    async with shown(console) as pilot:
        console._woken()
        await until(lambda: console.has_class("-stale"))
        await pilot.pause()
        assert "lost, data is 41 s old, reconnecting" in screen_lines(console)[0]
        assert "glm-5.2-air" in screen_text(console), "what was heard stays"
        console.store.set_link(Link(state="live", since=NOW))
        console._woken()
        await until(lambda: not console.has_class("-stale"))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(20, 5), (10, 2), (80, 24), (300, 80)])
async def test_no_size_breaks_it(size: tuple[int, int]) -> None:
    console = console_with(*played(20))
    async with shown(console, size=size) as pilot:
        for key in (
            "2",
            "enter",
            "3",
            "4",
            "down",
            "enter",
            "question_mark",
            "escape",
            "ctrl+p",
            "escape",
            "x",
            "escape",
        ):
            await pilot.press(key)
            await pilot.pause()
            assert len(screen_lines(console)) == size[1]
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "llmgw" in screen_lines(console)[0]


@pytest.mark.asyncio
async def test_ages_are_read_again_every_second_without_a_message() -> None:
    now = [NOW]
    console = console_with(small_fleet(), start="replicas")
    console.clock = lambda: now[0]
    async with shown(console) as pilot:
        starting = replica_row("r-new", "glm-5.2", "gpu02", "starting", since_s=10)
        await tell(console, pilot, delta({"replicas": {"r-new": starting}}))
        assert "0:10" in screen_text(console)
        now[0] += 7
        console._tick()
        await pilot.pause()
        assert "0:17" in screen_text(console)


@pytest.mark.asyncio
async def test_copy_reaches_the_terminal_and_says_so() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("c")
        await until(lambda: console.clipboard == "glm-5.2-air")
        await until(lambda: bool(console._notifications))
        (said,) = console._notifications
        assert said.message.startswith("copied glm-5.2-air")


@pytest.mark.asyncio
async def test_yaml_is_the_row_and_follows_it() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("y")
        await until(lambda: "name: glm-5.2-air" in screen_text(console))
        await tell(console, pilot, delta({"models": {"glm-5.2-air": model_row("glm-5.2-air", "ready")}}))
        assert "state: ready" in screen_text(console)
