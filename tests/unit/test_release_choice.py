"""Which archive of a release a machine takes: by its architecture, its cards, and what their driver can do."""

import pytest

from agent.provision.release import Asset, Listing, MeantElsewhere, choose, is_safe_listing, read_listing
from agent.provision.uv import BuildFailed
from llmgw.core.cluster import Card

NAMES = (
    "llama-b9-bin-ubuntu-x64.tar.gz",
    "llama-b9-bin-ubuntu-vulkan-x64.tar.gz",
    "llama-b9-bin-ubuntu-cuda-12.8-x64.tar.gz",
    "llama-b9-bin-ubuntu-cuda-13.1-x64.tar.gz",
    "llama-b9-bin-ubuntu-rocm-7.2-x64.tar.gz",
    "llama-b9-bin-ubuntu-arm64.tar.gz",
    "llama-b9-bin-macos-arm64.tar.gz",
    "llama-b9-bin-win-cuda-13.1-x64.zip",
    "llama-b8-bin-ubuntu-x64.tar.gz",
    "cudart-llama-bin-win-cuda-13.1-x64.zip",
)


def listing(*names: str) -> Listing:
    """A release with these files."""
    return Listing(tag_name="b9", assets=tuple(Asset(name=name) for name in names or NAMES))


def card(driver: str, capability: str = "") -> Card:
    """A card under that driver."""
    return Card(
        uuid="GPU-1",
        index=0,
        name="H200",
        gpu_class="h200",
        memory_total_bytes=1,
        driver=driver,
        compute_capability=capability,
    )


@pytest.mark.parametrize(
    ("variant", "cards", "architecture", "name"),
    [
        ("auto", (), "x86_64", "llama-b9-bin-ubuntu-x64.tar.gz"),
        ("auto", (), "aarch64", "llama-b9-bin-ubuntu-arm64.tar.gz"),
        ("auto", (card("580.65.06"),), "x86_64", "llama-b9-bin-ubuntu-cuda-13.1-x64.tar.gz"),
        ("auto", (card("570.12"),), "x86_64", "llama-b9-bin-ubuntu-cuda-12.8-x64.tar.gz"),
        ("auto", (card("580.1"), card("470.1")), "x86_64", "llama-b9-bin-ubuntu-vulkan-x64.tar.gz"),
        # CUDA 13 makes nothing for Volta and before, which its driver still runs.
        ("auto", (card("580.1", "7.0"),), "x86_64", "llama-b9-bin-ubuntu-cuda-12.8-x64.tar.gz"),
        ("auto", (card("580.1", "9.0"), card("580.1", "6.1")), "x86_64", "llama-b9-bin-ubuntu-cuda-12.8-x64.tar.gz"),
        ("auto", (card("580.1", "7.5"), card("580.1", "12.0")), "x86_64", "llama-b9-bin-ubuntu-cuda-13.1-x64.tar.gz"),
        ("cuda", (card("580.1", "6.1"),), "x86_64", "llama-b9-bin-ubuntu-cuda-12.8-x64.tar.gz"),
        ("vulkan", (card("580.1"),), "x86_64", "llama-b9-bin-ubuntu-vulkan-x64.tar.gz"),
        ("cpu", (card("580.1"),), "x86_64", "llama-b9-bin-ubuntu-x64.tar.gz"),
    ],
)
def test_the_archive_is_the_one_for_this_machine(
    variant: str, cards: tuple[Card, ...], architecture: str, name: str
) -> None:
    assert choose(listing(), architecture=architecture, variant=variant, cards=cards).asset.name == name


@pytest.mark.parametrize(
    ("architecture", "cards", "words"),
    [("riscv64", (), "no archive for Linux on riscv64"), ("aarch64", (card("580.1"),), "no archive for these cards")],
)
def test_a_machine_a_release_is_not_made_for_is_no_fault(
    architecture: str, cards: tuple[Card, ...], words: str
) -> None:
    with pytest.raises(MeantElsewhere, match=words):
        choose(listing(), architecture=architecture, variant="auto", cards=cards)


def test_a_variant_that_was_named_and_is_not_there_is_one() -> None:
    with pytest.raises(BuildFailed, match=r"has no cuda archive .* it has cpu: name another as llamacpp_variant"):
        choose(listing("llama-b9-bin-ubuntu-x64.tar.gz"), architecture="x86_64", variant="cuda", cards=())


@pytest.mark.parametrize(
    ("digest", "sha256"),
    [(f"sha256:{'a' * 64}", "a" * 64), (None, ""), ("md5:abc", ""), ("sha256:XYZ", ""), (f"sha256:{'A' * 64}", "")],
)
def test_only_a_sha256_is_a_checksum(digest: str | None, sha256: str) -> None:
    assert Asset(name="x", digest=digest).sha256 == sha256


def test_a_listing_of_something_else_is_refused() -> None:
    with pytest.raises(BuildFailed, match="is not a release's JSON"):
        read_listing(b"<html>", "b9")
    with pytest.raises(BuildFailed, match="is of release 'b8' and not of b9"):
        read_listing(b'{"tag_name": "b8"}', "b9")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://api.example/tags", True),
        ("http://127.0.0.1:1/tags", True),
        ("http://localhost/tags", True),
        ("http://api.example/tags", False),
        ("http://10.0.0.1/tags", False),
        ("ftp://127.0.0.1/tags", False),
    ],
)
def test_checksums_are_believed_over_tls_alone(url: str, safe: bool) -> None:
    assert is_safe_listing(url) is safe
