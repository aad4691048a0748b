"""Clusters by name: listed, gone to live, remembered and forgotten; nothing of the one left stays on the screen."""

from pathlib import Path

import pytest

from console.app import Console
from console.client.contexts import add_profile, read_profiles
from console.contexts import Contexts
from console.lines import candidates
from console.screens.cluster_form import ClusterForm
from console.screens.clusters import Clusters
from console.screens.dialog import Question
from console.screens.overview import Overview
from llmgw.api.problems import Usage
from llmgw.api.targets import Profile, ServerTarget
from tests.console.harness import screen_text, shown, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import empty_cluster, model_row, small_rows, snapshot


def console_at(path: Path, profiles: Path, *, start: str = "models") -> Console:
    """A console that follows the feed at `path` and reads `profiles`."""
    target = ServerTarget(socket=path)
    console = Console(target, start=start)
    console.contexts = Contexts(target, profiles)
    return console


@pytest.mark.asyncio
async def test_going_to_another_cluster_shows_its_rows_and_none_of_the_old_ones(tmp_path: Path) -> None:
    other = snapshot({"models": {"other-model": model_row("other-model")}}, epoch="other")
    profiles = tmp_path / "profiles.yaml"
    add_profile(profiles, "far", Profile(server=f"unix:{tmp_path}/b.sock"))
    async with fake_feed(tmp_path / "a.sock", snapshot(small_rows())), fake_feed(tmp_path / "b.sock", other) as far:
        console = console_at(tmp_path / "a.sock", profiles)
        async with shown(console) as pilot:
            await until(lambda: "qwen2.5-7b" in screen_text(console))
            await pilot.press("2", *":ctx far", "enter")
            await until(lambda: console.store.state.epoch == "other")
            assert far.readers == 1
            await until(lambda: console.main.trail.here.view == "overview")
            assert console.main.trail.before == ()
            await pilot.press("2")
            await until(lambda: "other-model" in screen_text(console))
            assert "qwen2.5-7b" not in screen_text(console)
            assert console.context == "far"
            assert "far" in screen_text(console).splitlines()[0]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_figures_of_the_old_one_go_though_nobody_answers_at_the_new_one(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    profiles = tmp_path / "profiles.yaml"
    add_profile(profiles, "gone", Profile(server=f"unix:{tmp_path}/nobody.sock"))
    async with fake_feed(tmp_path / "a.sock", snapshot(small_rows())):
        console = console_at(tmp_path / "a.sock", profiles, start="overview")
        async with shown(console, size=size) as pilot:
            await until(lambda: "28.4k" in screen_text(console))
            await pilot.press(*":ctx", "enter")
            await until(lambda: isinstance(console.main.view, Clusters) and console.main.view.is_mounted)
            await pilot.pause()
            await pilot.press(*":ctx gone", "enter")
            await until(lambda: isinstance(console.main.view, Overview))
            await until(lambda: "nothing needs to be pressed" in screen_text(console))
            assert "28.4k" not in screen_text(console)


@pytest.mark.asyncio
async def test_the_cluster_the_console_was_started_at_can_be_gone_back_to(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    add_profile(profiles, "far", Profile(server=f"unix:{tmp_path}/b.sock"))
    async with (
        fake_feed(tmp_path / "a.sock", snapshot(small_rows())),
        fake_feed(tmp_path / "b.sock", empty_cluster()),
    ):
        console = console_at(tmp_path / "a.sock", profiles)
        async with shown(console) as pilot:
            await until(lambda: console.store.state.heard)
            started = console.context
            await pilot.press(*":ctx far", "enter")
            await until(lambda: console.context == "far")
            assert candidates(f"ctx {started}", console.store.state, console.context_names()) == [f"ctx {started}"]
            await pilot.press(*":ctx", "enter")
            await until(lambda: isinstance(console.main.view, Clusters) and console.main.view.is_mounted)
            await pilot.pause()
            view = console.main.view
            assert isinstance(view, Clusters)
            assert set(view.table.shown) == {"far", started}
            assert "started with, not in the file" in screen_text(console)

            view.table.move_to(started)
            await pilot.pause()
            assert "forget" not in [command.label for command in view.commands()]
            await pilot.press("enter")
            await until(lambda: console.admin.target.socket == tmp_path / "a.sock")
            assert console.context == started

            await pilot.press(*":ctx far", "enter")
            await until(lambda: console.context == "far")
            await pilot.press(*f":ctx {started}", "enter")
            await until(lambda: console.admin.target.socket == tmp_path / "a.sock")


def test_the_start_keeps_its_token_and_is_listed_once_it_has_no_name_of_its_own(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    start = ServerTarget(host="10.0.0.7", port=9000, token="secret")
    contexts = Contexts(start, profiles)
    assert contexts.names() == ["10.0.0.7:9000"]
    contexts.add("prod", "http://10.0.0.8:9000")
    contexts.target = contexts.find("prod")
    assert contexts.names() == ["10.0.0.7:9000", "prod"]
    assert contexts.find("10.0.0.7:9000") is start
    contexts.add("lab", str(start))
    assert contexts.names() == ["lab", "prod"]
    contexts.remove("lab")
    assert contexts.names() == ["10.0.0.7:9000", "prod"]
    with pytest.raises(Usage, match=r"known are 10\.0\.0\.7:9000, prod; "):
        contexts.find("prob")


def test_the_start_is_called_in_full_where_the_file_calls_another_so(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    add_profile(profiles, "demo", Profile(server="http://10.0.0.8:9000"))
    contexts = Contexts(ServerTarget(socket=Path("/run/demo/admin.sock")), profiles)
    assert contexts.name == "unix:/run/demo/admin.sock"
    assert contexts.names() == ["demo", "unix:/run/demo/admin.sock"]
    assert contexts.find("demo").host == "10.0.0.8"


def test_the_start_can_be_gone_back_to_though_the_file_cannot_be_read(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("servers: [not, a, mapping]\n")
    start = ServerTarget(socket=tmp_path / "a.sock")
    contexts = Contexts(start, profiles)
    assert contexts.names() == [contexts.name]
    assert contexts.find(contexts.name) is start


@pytest.mark.asyncio
async def test_the_page_lists_adds_goes_and_forgets(tmp_path: Path) -> None:
    profiles = tmp_path / "conf" / "profiles.yaml"
    async with (
        fake_feed(tmp_path / "a.sock", snapshot(small_rows())),
        fake_feed(tmp_path / "b.sock", empty_cluster()),
    ):
        console = console_at(tmp_path / "a.sock", profiles)
        async with shown(console) as pilot:
            await until(lambda: console.store.state.heard)
            await pilot.press(*":ctx", "enter")
            await until(lambda: isinstance(console.main.view, Clusters) and console.main.view.is_mounted)
            await pilot.pause()
            assert "not in the file" in screen_text(console)

            await pilot.press("n")
            await until(lambda: isinstance(console.screen, ClusterForm))
            await pilot.press("ctrl+u", *"here", "enter", "enter", "enter")
            await until(lambda: list(read_profiles(profiles).servers) == ["here"])
            assert (profiles.stat().st_mode & 0o777) == 0o600
            await until(lambda: console.screen is console.main)
            assert console.context == "here"

            await pilot.press("n")
            await until(lambda: isinstance(console.screen, ClusterForm))
            await pilot.press(*"next", "enter", *"nonsense", "enter", "enter")
            assert "is not a server" in screen_text(console)
            await pilot.press("ctrl+u", *f"unix:{tmp_path}/b.sock", "enter", "enter")
            await until(lambda: sorted(read_profiles(profiles).servers) == ["here", "next"])
            await until(lambda: console.screen is console.main)

            await pilot.press("G", "D")
            await until(lambda: isinstance(console.screen, Question))
            await pilot.press("enter")
            await until(lambda: console.screen is console.main)
            assert sorted(read_profiles(profiles).servers) == ["here", "next"]

            await pilot.press("enter")
            await until(lambda: console.admin.target.socket == tmp_path / "b.sock")
            await until(lambda: console.store.state.heard)
            assert console.store.state.models == {}

            await pilot.press(*":ctx remove here", "enter")
            await until(lambda: list(read_profiles(profiles).servers) == ["next"])


@pytest.mark.asyncio
async def test_a_file_that_cannot_be_read_says_where_it_is_wrong(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("servers: [not, a, mapping]\n")
    async with fake_feed(tmp_path / "a.sock", empty_cluster()):
        console = console_at(tmp_path / "a.sock", profiles)
        async with shown(console, size=(160, 30)) as pilot:
            await pilot.press(*":ctx", "enter")
            await until(lambda: isinstance(console.main.view, Clusters) and console.main.view.is_mounted)
            await pilot.pause()
            assert "profiles.yaml" in screen_text(console)
