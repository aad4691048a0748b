"""llama.cpp is installed from a release's archive: checked, resumed, unpacked beside what is used, and tried."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.provision.archive import ArchiveOrder, Origin, install
from agent.provision.build import Ready, ready
from agent.provision.meant import Machine
from agent.provision.release import MeantElsewhere
from agent.provision.service import Provisions
from agent.provision.uv import MAX_LOG_BYTES, BuildFailed, Runner
from llmgw.core.cluster import Card
from tests.support.release import TAG, Release, release_archive, release_server, server_program
from tests.support.waiting import until
from tests.support.weights import quick

NAME = f"llama-{TAG}-bin-ubuntu-x64.tar.gz"
VULKAN = f"llama-{TAG}-bin-ubuntu-vulkan-x64.tar.gz"
CARD = Card(uuid="GPU-1", index=0, name="H200", gpu_class="h200", memory_total_bytes=1, driver="580.65")
MIB = 1 << 20


def order(root: Path, release: Release, **changes: object) -> ArchiveOrder:
    """The release on a machine without cards."""
    common = {"version": TAG, "root": root, "origin": Origin(releases=release.releases), "architecture": "x86_64"}
    return ArchiveOrder(**{**common, "disk_bytes": MIB, "policy": quick(), **changes})  # type: ignore[arg-type]


async def put(asked: ArchiveOrder) -> Ready:
    """Install it."""
    asked.root.mkdir(parents=True, exist_ok=True)
    return await install(asked, Runner(asked.root / "install.log", lambda _: None))


@pytest.mark.trio
async def test_an_archive_is_checked_unpacked_and_tried(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    async with release_server({NAME: release_archive()}) as release:
        asked = order(tmp_path / "llamacpp", release, report=lambda done, total: heard.append((done, total)))
        await put(asked)
        size = len(release.files[NAME].data)
    found = ready(asked.target)
    assert found is not None
    assert (found.version, found.checked) == (TAG, "cpu: version: 100 (0abcdef)")
    assert subprocess.run([asked.target / "bin" / "llama-server", "--version"], capture_output=True).returncode == 0
    assert heard[-1] == (size, size)
    assert list((asked.root / "downloads").iterdir()) == []
    assert "--version" in (asked.root / "install.log").read_text()


@pytest.mark.trio
@pytest.mark.parametrize("fault", ["cut", "wrong bytes", "200 to a range", "slow", "redirect"])
async def test_a_download_that_goes_wrong_on_its_way_is_carried_on(tmp_path: Path, fault: str) -> None:
    async with release_server({NAME: release_archive(padding=5 * MIB)}, seed=5) as release:
        file = release.files[NAME]
        asked = order(tmp_path / "llamacpp", release)
        file.next_life("", 0.6)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(put, asked)
                await file.holding.wait()
                (part,) = list((asked.root / "downloads").glob("*.part"))
                await until(lambda: part.stat().st_size > 2 * MIB)
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught
        held = part.stat().st_size
        assert ready(asked.target) is None
        file.next_life("slow" if fault == "redirect" else fault, 2.0)
        await put(asked)
        assert file.answers[0].start == held, "what is here is not fetched again"
    assert ready(asked.target) is not None


@pytest.mark.trio
async def test_what_is_not_what_was_published_is_never_unpacked(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive()}) as release:
        release.digests[NAME] = f"sha256:{'0' * 64}"
        asked = order(tmp_path / "llamacpp", release)
        with pytest.raises(BuildFailed, match=r"does not have the published sha256 000000000000…; it was removed"):
            await put(asked)
    assert not asked.target.exists()
    assert [path for path in (asked.root / "downloads").rglob("*") if path.is_file()] == []


@pytest.mark.trio
async def test_without_a_checksum_nothing_is_installed_unless_the_operator_knows_it(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive()}) as release:
        release.digests[NAME] = None
        asked = order(tmp_path / "llamacpp", release)
        with pytest.raises(BuildFailed, match="no checksum was published for llama-b100-bin-ubuntu-x64"):
            await put(asked)
        assert release.files[NAME].answers == [], "nothing is fetched that could not be checked"
        assert release.server is not None
        own = f"{release.server.url}/download/llama-{{version}}-bin-ubuntu-x64.tar.gz"
        with pytest.raises(BuildFailed, match="write it as llamacpp_sha256"):
            await put(order(tmp_path / "llamacpp", release, origin=Origin(archive=own)))
        release.digests.clear()
        (digest,) = {asset["digest"] for asset in _assets(release)}
        known = Origin(archive=own, sha256=digest.removeprefix("sha256:"))
        found = await put(order(tmp_path / "llamacpp", release, origin=known))
    assert found.version == TAG


def _assets(release: Release) -> list[dict[str, str]]:
    assets: list[dict[str, str]] = json.loads(release.listing())["assets"]
    return assets


@pytest.mark.trio
@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (release_archive(b"#!/bin/sh\necho 'libvulkan.so.1 is missing' >&2; exit 127\n"), "libvulkan.so.1 is missing"),
        (release_archive()[:40_000], "cannot be unpacked"),
        (b"<html>", "cannot be unpacked"),
    ],
    ids=["does not run", "cut", "a page"],  # a gzip holds its time: its bytes would name the test otherwise each run
)
async def test_what_fails_is_said_and_nothing_half_is_taken_for_whole(
    tmp_path: Path, archive: bytes, words: str
) -> None:
    async with release_server({NAME: archive}) as release:
        asked = order(tmp_path / "llamacpp", release)
        with pytest.raises(BuildFailed, match=words):
            await put(asked)
        assert ready(asked.target) is None
        with pytest.raises(BuildFailed, match=r"there is no release b101 of llama\.cpp"):
            await put(order(tmp_path / "llamacpp", release, version="b101"))
        with pytest.raises(BuildFailed, match=r"needs .* free in .*, and .* are: make room"):
            await put(order(tmp_path / "llamacpp", release, disk_bytes=1 << 60))
        with pytest.raises(MeantElsewhere):
            await put(order(tmp_path / "llamacpp", release, architecture="riscv64"))


@pytest.mark.trio
async def test_an_archive_for_cards_has_to_see_one(tmp_path: Path) -> None:
    blind = release_archive(server_program())
    sighted = release_archive(server_program(devices=["Vulkan0: H200 (143771 MiB, 143000 MiB free)"]))
    async with release_server({NAME: release_archive(), VULKAN: blind}) as release:
        asked = order(tmp_path / "llamacpp", release, cards=(CARD,))
        with pytest.raises(BuildFailed, match=r"its check on a card failed: the vulkan archive of b100 sees no card"):
            await put(asked)
        assert ready(asked.target) is None
    async with release_server({VULKAN: sighted}) as release:
        found = await put(order(tmp_path / "llamacpp", release, cards=(CARD,)))
    assert found.checked.startswith("vulkan: version: 100 (0abcdef), Vulkan0: H200")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 8 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip(f"a small file system needs the right to mount a tmpfs: {made.stderr.decode(errors='replace')}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.trio
async def test_a_disk_that_fills_is_said_and_what_was_fetched_is_not_fetched_again(small_disk: Path) -> None:
    async with release_server({NAME: release_archive(padding=5 * MIB)}) as release:
        asked = order(small_disk / "llamacpp", release)
        with pytest.raises(OSError, match="No space left"):
            await put(asked)
        assert ready(asked.target) is None
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        fetched = len(release.files[NAME].answers)
        await put(asked)
        assert len(release.files[NAME].answers) == fetched == 1
    assert ready(asked.target) is not None


def provisions(tmp_path: Path, release: Release, **changes: object) -> Provisions:
    """An agent's."""
    common: dict[str, object] = {
        "root": tmp_path / "engines",
        "output": tmp_path / "log",
        "wanted": {"llamacpp": TAG},
        "origins": {"": Origin(releases=release.releases)},
        "machine": Machine(architecture="x86_64"),
        "has_cards": lambda: False,
        "archive_bytes": MIB,
        "kept": tmp_path / "builds.json",
        "retry_s": 0.05,
    }
    return Provisions(**{**common, **changes})  # type: ignore[arg-type]


@pytest.mark.trio
async def test_a_machine_without_cards_gets_llama_cpp_and_starts_it_from_there(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive()}) as release, trio.open_nursery() as nursery:
        made = provisions(tmp_path, release)
        engine = known_engines(AgentConfig(data=str(tmp_path)), made)["llamacpp"]
        assert made.installing("llamacpp") == f"{TAG}: to be installed"
        await nursery.start(made.run)
        await until(lambda: made.program("llamacpp") is not None)
        nursery.cancel_scope.cancel()
    detected = engine.detect()
    assert detected is not None
    assert (detected.version, detected.usable) == ("100 (0abcdef)", True)
    assert made.installing("llamacpp") == ""
    log = (tmp_path / "log" / "engine-llamacpp.log").read_text()
    assert f"# fetching {NAME}" in log
    assert "# installed: cpu: version: 100 (0abcdef)" in log


@pytest.mark.trio
async def test_what_the_cluster_asks_for_is_taken_up_kept_and_given_back(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive()}) as release, trio.open_nursery() as nursery:
        made = provisions(tmp_path, release, wanted={})
        await nursery.start(made.run)
        assert made.program("llamacpp") is None
        made.ask({"llamacpp": TAG, "vllm": "no version", "later": "1.0"})
        await until(lambda: made.program("llamacpp") is not None)
        # Another version is made beside it; until it is whole this one starts engines.
        made.ask({"llamacpp": "b101"})
        assert made.program("llamacpp") == tmp_path / "engines" / "llamacpp" / TAG / "bin" / "llama-server"
        await until(lambda: "there is no release b101" in made.installing("llamacpp"))
        again = provisions(tmp_path, release, wanted={"llamacpp": TAG})
        assert again.installing("llamacpp") == "b101: to be installed", "it holds over a restart"
        made.ask({"llamacpp": "none"})
        assert made.program("llamacpp") is None
        assert made.installing("llamacpp") == ""
        made.ask({})
        nursery.cancel_scope.cancel()
    assert (tmp_path / "builds.json").read_text() == "{}"
    assert provisions(tmp_path, release).program("llamacpp") is not None, "agent.yaml's own again"


@pytest.mark.trio
async def test_a_build_nobody_asks_for_any_more_ends(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive(padding=5 * MIB)}) as release, trio.open_nursery() as nursery:
        release.files[NAME].next_life("", 0.5)
        made = provisions(tmp_path, release, wanted={})
        await nursery.start(made.run)
        made.ask({"llamacpp": TAG})
        await release.files[NAME].holding.wait()
        await until(lambda: " of 5.2" in made.installing("llamacpp"))
        made.ask({})
        await until(lambda: not made._states and made.installing("llamacpp") == "")
        made.ask({"llamacpp": TAG})
        release.files[NAME].next_life("", 2.0)
        await until(lambda: made.program("llamacpp") is not None)
        assert release.files[NAME].answers[0].start > 0, "it went on from where it was"
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_build_that_fails_for_days_keeps_a_log_of_bounded_size(tmp_path: Path) -> None:
    log = tmp_path / "log" / "engine-llamacpp.log"
    log.parent.mkdir()
    log.write_text("old\n" * (MAX_LOG_BYTES // 4 + 1))
    async with release_server({}) as release, trio.open_nursery() as nursery:
        made = provisions(tmp_path, release, wanted={"llamacpp": "b7"})
        await nursery.start(made.run)
        await until(lambda: "there is no release b7" in made.installing("llamacpp"))
        nursery.cancel_scope.cancel()
    assert log.read_text().startswith("# not installed: there is no release b7")
    assert log.with_name(f"{log.name}.1").read_text().startswith("old")


@pytest.mark.trio
async def test_a_release_that_is_not_made_for_this_machine_is_no_fault(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive()}) as release, trio.open_nursery() as nursery:
        made = provisions(tmp_path, release, machine=Machine(architecture="riscv64"))
        await nursery.start(made.run)
        log = tmp_path / "log" / "engine-llamacpp.log"
        await until(lambda: log.exists() and "not meant for this machine" in log.read_text())
        await until(lambda: made.installing("llamacpp") == "")
        assert made.told("llamacpp") is None
        nursery.cancel_scope.cancel()
