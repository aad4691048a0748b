"""Archives of strangers: what is whole comes out as it was, and nothing leads out of the directory it goes into."""

import io
import tarfile
from pathlib import Path

import pytest

from agent.provision.unpack import unpack
from agent.provision.uv import BuildFailed
from tests.support.release import archive, member, release_archive


def put(tmp_path: Path, data: bytes) -> Path:
    """It as a file."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(data)
    return path


def test_files_come_out_with_their_links_and_may_be_run(tmp_path: Path) -> None:
    unpack(put(tmp_path, release_archive(b"#!/bin/sh\n")), tmp_path / "out")
    folder = tmp_path / "out" / "llama-b100"
    assert (folder / "llama-server").stat().st_mode & 0o777 == 0o755
    assert (folder / "libllama.so.0").stat().st_mode & 0o777 == 0o644
    assert (folder / "libllama.so").read_bytes() == (folder / "libllama.so.0").read_bytes()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member("/etc/evil", b"x")], "leads out"),
        ([member("a/../../evil", b"x")], "leads out"),
        ([member("evil", kind=tarfile.SYMTYPE, goal="/etc")], "a link that may lead out"),
        ([member("evil", kind=tarfile.SYMTYPE, goal="a/../../..")], "a link that may lead out"),
        ([member("d", kind=tarfile.SYMTYPE, goal="e"), member("d/evil", b"x")], "written through a link"),
        ([member("d", kind=tarfile.SYMTYPE, goal="e"), member("d", b"x")], "written through a link"),
        ([member("d", b"x"), member("d", kind=tarfile.SYMTYPE, goal="e")], "there twice"),
        ([member("evil", kind=tarfile.LNKTYPE, goal="etc")], "neither a file"),
        ([member("evil", kind=tarfile.FIFOTYPE)], "neither a file"),
        ([member("evil", kind=tarfile.CHRTYPE)], "neither a file"),
        ([member("big", bytes(2_000_000))], "holds more than 1 MB"),
    ],
)
def test_what_leads_out_or_is_too_large_is_refused(tmp_path: Path, members: list[object], words: str) -> None:
    before = set(tmp_path.rglob("*"))
    path = put(tmp_path, archive(*members))
    with pytest.raises(BuildFailed, match=words):
        unpack(path, tmp_path / "in" / "out", max_bytes=1_000_000)
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "in")} - before
    assert outside == {path}
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize(
    "data", [b"", b"no archive", release_archive()[:50_000]], ids=["nothing", "no archive", "half of one"]
)
def test_what_is_no_archive_or_half_of_one_is_said(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BuildFailed, match=r"a\.tar\.gz cannot be unpacked"):
        unpack(put(tmp_path, data), tmp_path / "out")


def test_a_header_that_promises_less_than_it_brings_writes_no_more_than_it_promised(tmp_path: Path) -> None:
    out = io.BytesIO()
    info = tarfile.TarInfo("f")
    info.size = 10
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(info, io.BytesIO(bytes(1000)))
    unpack(put(tmp_path, out.getvalue()), tmp_path / "out", max_bytes=10)
    assert (tmp_path / "out" / "f").stat().st_size == 10
