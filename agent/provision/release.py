"""Which archive of a llama.cpp release this machine takes, and the checksum that was published with it.

A release's listing is GitHub's (`GET …/releases/tags/TAG`): each asset has a name, a size, an address and, since 2025,
a `digest`. An archive without a checksum is refused, for what is unpacked here is run.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from agent.provision.uv import BuildFailed
from llmgw.core.capability import Capability, too_old
from llmgw.core.cluster import Card
from llmgw.core.text import clip, safe

ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "s390x": "s390x"}
"""What archives are called after, by what `uname -m` says."""
CUDA_DRIVERS = {12: 525, 13: 580}
"""Series of the driver that each major version of CUDA needs at least."""
CUDA_CAPABILITIES: Mapping[int, Capability] = {13: (7, 5)}
"""Least compute capability that each major version of CUDA still makes programs for, where it leaves cards out."""
MAX_LISTING_BYTES = 4 * 1024 * 1024
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SERIES = re.compile(r"([0-9]{1,5})\.")


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a release, as far as it is looked at."""

    name: str
    size: int | None = None
    digest: str | None = None
    """`sha256:` and hex digits; null for what was uploaded before there were any."""
    browser_download_url: str = ""

    @property
    def sha256(self) -> str:
        """The published checksum in hex; empty when there is none that is known here."""
        match = _DIGEST.fullmatch(self.digest or "")
        return match[1] if match else ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One release."""

    tag_name: str
    assets: tuple[Asset, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The archive to fetch."""

    asset: Asset
    variant: str
    """`cpu`, `vulkan`, `cuda-13.1`."""


class MeantElsewhere(Exception):
    """The release has nothing for machines like this one, which is nobody's fault; the text says what it lacks."""


def read_listing(data: bytes, version: str) -> Listing:
    """The listing of that release; raises BuildFailed for anything else."""
    try:
        listing = msgspec.json.decode(data, type=Listing)
    except msgspec.MsgspecError as error:
        raise BuildFailed(f"the listing of llama.cpp {version} is not a release's JSON: {error}") from error
    if listing.tag_name != version:
        raise BuildFailed(
            f"the listing is of release {clip(safe(listing.tag_name), 40)!r} and not of {version}: llamacpp_releases "
            "in agent.yaml names the address before the tag"
        )
    return listing


def choose(listing: Listing, *, architecture: str, variant: str, cards: Sequence[Card]) -> Chosen:
    """The archive for a machine; raises MeantElsewhere, and BuildFailed when what was named is not in the release.

    `variant` is what agent.yaml asks for: with `auto` a machine with cards takes the newest CUDA that its driver can
    do, else Vulkan, and one without cards takes the processors' own.
    """
    mine = _archives(listing, architecture)
    if not mine:
        raise MeantElsewhere(f"release {listing.tag_name} has no archive for Linux on {architecture}")
    if variant == "auto":
        fitting = [v for v in mine if _suits(v, cards)]
        if not fitting:
            kind = "these cards and their driver" if cards else "machines without cards"
            raise MeantElsewhere(f"release {listing.tag_name} has no archive for {kind} (it has {', '.join(mine)})")
    else:
        fitting = [v for v in mine if v.partition("-")[0] == variant and (not cards or _driver_does(v, cards))]
        if not fitting:
            raise BuildFailed(
                f"release {listing.tag_name} has no {variant} archive that this machine can use, it has "
                f"{', '.join(mine)}: name another as llamacpp_variant in agent.yaml"
            )
    best = max(fitting, key=lambda v: (v.startswith("cuda"), _numbers(v)))
    return Chosen(asset=mine[best], variant=best)


def is_safe_listing(url: str) -> bool:
    """Whether what the address says can be believed: TLS, or this machine itself."""
    split = urlsplit(url)
    if split.scheme == "https":
        return bool(split.hostname)
    try:
        return split.scheme == "http" and ipaddress.ip_address(split.hostname or "").is_loopback
    except ValueError:
        return split.scheme == "http" and split.hostname == "localhost"


def _archives(listing: Listing, architecture: str) -> dict[str, Asset]:
    """Archives for this architecture by variant."""
    ending = ARCHITECTURES.get(architecture)
    if ending is None:
        return {}
    tag = re.escape(listing.tag_name)
    pattern = re.compile(rf"llama-{tag}-bin-ubuntu-(?:([a-z]{{2,12}}(?:-[0-9]+(?:\.[0-9]+)*)?)-)?{ending}\.tar\.gz")
    found = {}
    for asset in listing.assets:
        if match := pattern.fullmatch(asset.name):
            found[match[1] or "cpu"] = asset
    return found


def _suits(variant: str, cards: Sequence[Card]) -> bool:
    kind = variant.partition("-")[0]
    if not cards:
        return kind == "cpu"
    return kind == "vulkan" or (kind == "cuda" and _driver_does(variant, cards))


def _driver_does(variant: str, cards: Sequence[Card]) -> bool:
    """Whether every card, and its driver, is new enough for the CUDA an archive was made with."""
    kind, _, version = variant.partition("-")
    if kind != "cuda" or not version:
        return True
    major = int(version.partition(".")[0])
    needed, least = CUDA_DRIVERS.get(major), CUDA_CAPABILITIES.get(major)
    if needed is None or any(too_old(card.compute_capability, least, what=variant) for card in cards):
        return False
    series = [_SERIES.match(card.driver) for card in cards]
    return all(match is None or int(match[1]) >= needed for match in series)


def _numbers(variant: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", variant))
