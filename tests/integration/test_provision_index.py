"""The real uv against an index on loopback: days, downloads that break off, how far it is, and what newer is out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.provision.build import Order, build, ready
from agent.provision.followed import BUILT_IN, FOLLOWED, is_newer, main
from agent.provision.progress import Progress
from agent.provision.recipes import RECIPES, Recipe
from agent.provision.uv import BuildFailed, Runner
from tests.support.index import Index, running_index

MIB = 1 << 20
RECIPE = Recipe(
    engine="vllm", package="vllm", program="vllm", disk_bytes=MIB, check="import helper; print(helper.VERSION)"
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index that uv is configured for, with an engine and what it needs without pinning it."""
    with running_index(tmp_path / "published") as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        index.add("vllm", "1.2.0", day="2026-03-10", padding=3 * MIB, requires=("helper",))
        index.add("helper", "2.0", day="2026-01-01")
        index.add("helper", "3.0", day="2026-03-12")
        yield index


def order(tmp_path: Path, *, as_of: str = "") -> Order:
    """That version."""
    root = tmp_path / "engines" / "vllm"
    return Order(recipe=RECIPE, version="1.2.0", root=root, cache=tmp_path / "cache", as_of=as_of)


def test_an_environment_is_of_the_day_after_the_release_or_of_the_day_that_was_named(
    tmp_path: Path, index: Index
) -> None:
    runner = Runner(tmp_path / "build.log", lambda _: None)
    found = build(order(tmp_path), runner)
    assert (found.as_of, found.checked) == ("2026-03-11", "2.0")
    dated = build(order(tmp_path, as_of="2026-03-20"), runner)
    assert (dated.as_of, dated.checked) == ("2026-03-20", "3.0")


def test_a_download_that_breaks_off_is_said_and_the_next_try_is_well(tmp_path: Path, index: Index) -> None:
    index.cut.add("vllm-1.2.0-")
    asked = order(tmp_path, as_of="2026-03-20")
    progress, seen = Progress(), list[str]()

    def heard(line: str) -> None:
        progress.heard(line)
        seen.append(progress.words())

    runner = Runner(tmp_path / "build.log", heard)
    with pytest.raises(BuildFailed, match=r"installing vllm==1\.2\.0 failed: error: Failed to download .vllm==1\.2\.0"):
        build(asked, runner)
    assert ready(asked.target) is None
    index.cut.clear()
    build(asked, runner)
    assert ready(asked.target) is not None
    assert "0 B of 3.15 MB" in seen, "uv tells how much is to come"


def test_an_index_that_is_away_is_said(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(BuildFailed, match=r"asking the index for vllm==1\.2\.0 failed"):
        build(order(tmp_path), Runner(tmp_path / "build.log", lambda _: None))


def test_a_newer_release_is_noticed_and_what_is_withdrawn_or_not_final_is_none(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index.add("vllm", "1.10.0rc1")
    index.add("vllm", "1.9.0")
    index.withdrawn.add("vllm-1.9.0-")
    assert main({"vllm": "1.2.0", "helper": "3.0"}) == 0
    assert capsys.readouterr().out.splitlines() == [
        "vllm 1.2.0 is followed, and nothing newer is out",
        "helper 3.0 is followed, and nothing newer is out",
    ]
    index.add("vllm", "1.10.0")
    assert main({"vllm": "1.2.0", "helper": "3.0"}) == 1
    assert "vllm 1.2.0 is followed, and 1.10.0 is out: compare its flags" in capsys.readouterr().out


def test_an_index_that_cannot_be_asked_is_no_good_news(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    assert main({"sglang": "0.5.23"}) == 2
    assert "nobody knows of a newer one: uv says: " in capsys.readouterr().out
    assert main({"sglang": "0.5.23", "helper": "2.0"}) == 1, "one that is behind is told in any case"


@pytest.mark.parametrize(
    ("found", "than", "newer"),
    [
        ("0.10.0", "0.9.2", True),
        ("0.9.2", "0.9.2", False),
        ("0.9.1", "0.9.2", False),
        ("0.9.2.post1", "0.9.2", True),
        ("1.0", "1.0.0", False),
        ("2026.11.1", "2026.10.11549", True),
    ],
)
def test_versions_are_ordered_as_numbers(found: str, than: str, newer: bool) -> None:
    assert is_newer(found, than) is newer


def test_every_engine_that_is_installed_is_followed() -> None:
    assert set(FOLLOWED) == set(RECIPES)
    pinned = (Path(__file__).parents[2] / "requirements.lock").read_text()
    assert f"{BUILT_IN}==" in pinned
