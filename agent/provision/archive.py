"""llama.cpp from its release archives: room → listing → download → unpack → check → marker.

An archive is run only if its bytes have the checksum that was published for it, or the one the operator wrote down. It
is unpacked beside the version that is used, and counts once its marker is there.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio

from agent.provision.build import CHECK_TIMEOUT_S, Ready, check_room, write_marker
from agent.provision.release import (
    MAX_LISTING_BYTES,
    Asset,
    Chosen,
    Listing,
    choose,
    is_safe_listing,
    read_listing,
)
from agent.provision.unpack import unpack
from agent.provision.uv import BuildFailed, Runner
from llmgw.core.cluster import Card
from llmgw.core.errors import LlmgwError
from llmgw.core.units import GB
from llmgw.transfer.download import Policy, Report, Wanted, download
from llmgw.transfer.http import Remote, redacted, request

ENGINE = "llamacpp"
PROGRAM = "llama-server"
DISK_BYTES = 3 * GB
"""An archive and what comes out of it."""
_CHECK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEVICE = "available devices"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where archives come from, as agent.yaml has it."""

    variant: str = "auto"
    releases: str = ""
    """Address of a release's listing, without the tag at its end."""
    archive: str = ""
    """Address of the archive itself, `{version}` standing for the tag; no listing is asked then."""
    sha256: str = ""
    """Hex digest that counts instead of the published one."""


@dataclass(frozen=True, kw_only=True)
class ArchiveOrder:
    """What is to be installed, where, and for which machine."""

    version: str
    root: Path
    """Directory of all versions."""
    origin: Origin
    architecture: str
    """As `uname -m` says it."""
    cards: Sequence[Card] = ()
    disk_bytes: int = DISK_BYTES
    report: Report = field(default=lambda _done, _total: None)
    said: Callable[[str], None] = field(default=lambda _: None)
    """Told what is done now."""
    policy: Policy = field(default_factory=Policy)

    @property
    def target(self) -> Path:
        """Where it is unpacked."""
        return self.root / directory_of(self.version, self.origin.variant)


def directory_of(version: str, variant: str) -> str:
    """What an installation is called: one whose variant the operator named is another than the one that was chosen."""
    return version if variant == "auto" else f"{version}-{variant}"


async def install(order: ArchiveOrder, runner: Runner) -> Ready:
    """Install it; raises BuildFailed, MeantElsewhere, and OSError for a disk that fails."""
    await trio.to_thread.run_sync(_prepare, order)
    chosen = await _chosen(order)
    kept = order.root / "downloads" / f"{chosen.asset.sha256[:16]}-{chosen.asset.name}"
    if not kept.exists():  # by that name there is only what had the checksum
        order.said(f"fetching {chosen.asset.name}")
        await _fetch(order, chosen.asset, kept)
    order.said(f"unpacking {chosen.asset.name}")
    await trio.to_thread.run_sync(_unpacked, order, kept)
    program = await trio.to_thread.run_sync(_link_program, order.target)
    found = await trio.to_thread.run_sync(_check, order, chosen, program, runner)
    await trio.to_thread.run_sync(partial(kept.unlink, missing_ok=True))
    return found


def _prepare(order: ArchiveOrder) -> None:
    order.root.mkdir(parents=True, exist_ok=True)
    check_room(ENGINE, order.version, order.root, order.disk_bytes)


async def _chosen(order: ArchiveOrder) -> Chosen:
    """The archive with its checksum; raises BuildFailed when nobody says one."""
    origin = order.origin
    if origin.archive:
        url = origin.archive.replace("{version}", order.version)
        if not origin.sha256:
            raise BuildFailed(
                f"there is no checksum for {redacted(url)}: write it as llamacpp_sha256 in agent.yaml, or leave "
                "llamacpp_archive out to take the one published with the release"
            )
        name = url.partition("?")[0].rpartition("/")[2]
        asset = Asset(name=name, digest=f"sha256:{origin.sha256}", browser_download_url=url)
        return Chosen(asset=asset, variant=origin.variant)
    listing = await _listing(order)
    chosen = choose(listing, architecture=order.architecture, variant=origin.variant, cards=order.cards)
    asset = chosen.asset
    sha256 = origin.sha256 or asset.sha256
    if not sha256:
        raise BuildFailed(
            f"no checksum was published for {asset.name}: name a newer release, or write its sha256 as llamacpp_sha256 "
            "in agent.yaml"
        )
    known = Asset(
        name=asset.name,
        size=asset.size,
        digest=f"sha256:{sha256}",
        browser_download_url=asset.browser_download_url,
    )
    return Chosen(asset=known, variant=chosen.variant)


async def _listing(order: ArchiveOrder) -> Listing:
    url = f"{order.origin.releases.rstrip('/')}/{order.version}"
    if not is_safe_listing(url):
        raise BuildFailed(
            f"{redacted(url)} would be asked for checksums without TLS: give llamacpp_releases an https address"
        )
    headers = {"Accept": "application/json"}
    try:
        async with request(Remote(url=url), headers=headers) as response:
            data = await response.read(MAX_LISTING_BYTES)
            if response.status == 404:
                raise BuildFailed(f"there is no release {order.version} of llama.cpp at {redacted(url)}")
            if response.status != 200:
                raise BuildFailed(f"{redacted(url)} answers {response.status}: the listing of the release is needed")
    except BuildFailed:
        raise
    except LlmgwError as error:
        raise BuildFailed(f"the listing of llama.cpp {order.version} cannot be had: {error.message}") from error
    return read_listing(data, order.version)


async def _fetch(order: ArchiveOrder, asset: Asset, kept: Path) -> None:
    remote = Remote(url=asset.browser_download_url)
    wanted = Wanted(target=kept, size=asset.size, sha256=asset.sha256)
    try:
        await download(remote, wanted, report=order.report, policy=order.policy)
    except LlmgwError as error:
        raise BuildFailed(error.message) from error


def _unpacked(order: ArchiveOrder, kept: Path) -> None:
    shutil.rmtree(order.target, ignore_errors=True)
    unpack(kept, order.target)


def _link_program(target: Path) -> Path:
    """The program, which lies deeper or shallower from release to release, at the place where engines are started."""
    found = sorted(path for path in target.rglob(PROGRAM) if path.is_file() and os.access(path, os.X_OK))
    if not found:
        raise BuildFailed(f"the archive brought no program called {PROGRAM}")
    program = target / "bin" / PROGRAM
    if found[0] != program:
        program.parent.mkdir(exist_ok=True)
        program.symlink_to(os.path.relpath(found[0], program.parent))
    return program


def _check(order: ArchiveOrder, chosen: Chosen, program: Path, runner: Runner) -> Ready:
    """It starts here, and sees a card where it was taken for cards."""
    env = {"PATH": _CHECK_PATH, "LANG": "C.UTF-8"}
    if libraries := os.environ.get("LD_LIBRARY_PATH"):
        env["LD_LIBRARY_PATH"] = libraries
    what = f"it is unpacked, and its check ({PROGRAM} --version)"
    said = runner.run([str(program), "--version"], env=env, what=what, timeout_s=CHECK_TIMEOUT_S)
    checked = next((line for line in said if line.startswith("version:")), said[-1] if said else "")
    if order.cards and chosen.variant.partition("-")[0] not in ("cpu", "auto"):
        what = f"it is unpacked, and asking it for cards ({PROGRAM} --list-devices)"
        lines = runner.run([str(program), "--list-devices"], env=env, what=what, timeout_s=CHECK_TIMEOUT_S)
        devices = _devices(lines)
        if not devices:
            raise BuildFailed(
                f"its check on a card failed: the {chosen.variant} archive of {order.version} sees no card "
                f"({PROGRAM} --list-devices names none); install the driver's {chosen.variant.partition('-')[0]} "
                "library, or name another as llamacpp_variant in agent.yaml"
            )
        checked = f"{checked}, {devices[0]}"
    found = Ready(
        engine=ENGINE,
        version=order.version,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        checked=f"{chosen.variant}: {checked}",
    )
    write_marker(order.target, found)
    return found


def _devices(lines: Sequence[str]) -> list[str]:
    """What stands below `Available devices:`."""
    for at, line in enumerate(lines):
        if line.lower().startswith(_DEVICE):
            return [text for text in lines[at + 1 :] if ":" in text]
    return []
