"""Clusters by name: listed, gone to live, remembered and forgotten; nothing of the one left stays on the screen."""

from pathlib import Path

import pytest

from console.app import Console
from console.client.contexts import add_profile, read_profiles
from console.contexts import Contexts
from console.screens.cluster_form import ClusterForm
from console.screens.clusters import Clusters
from console.screens.dialog import Question
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
