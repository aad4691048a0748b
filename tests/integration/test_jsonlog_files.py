"""Log files are private, rotate by size, and stop no process when the disk is full or the directory goes away."""

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.core import jsonlog


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_in_a_private_file(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        jsonlog.setup(tmp_path / "log" / "server.log", process="server")
        logging.getLogger("llmgw.x").info("two\nlines", extra={"replica": "r1"})
    finally:
        os.umask(old)
    path = tmp_path / "log" / "server.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (line,) = lines(path)
    assert (line["msg"], line["replica"], line["level"], line["pid"]) == ("two\nlines", "r1", "info", os.getpid())


def test_rotation_keeps_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlog, "MAX_LOG_BYTES", 2000)
    path = tmp_path / "server.log"
    jsonlog.setup(path, process="server")
    for i in range(200):
        logging.getLogger("x").info("line %d", i)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + jsonlog.KEPT_LOGS
    assert all(file.stat().st_size <= 2200 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert lines(path)[-1]["msg"] == "line 199"


def test_a_second_setup_replaces_the_first(tmp_path: Path) -> None:
    jsonlog.setup(tmp_path / "a.log", process="a")
    jsonlog.setup(tmp_path / "b.log", process="b", level="warning")
    logging.getLogger("x").info("no")
    logging.getLogger("x").warning("yes")
    assert (tmp_path / "a.log").read_text() == ""
    assert [line["msg"] for line in lines(tmp_path / "b.log")] == ["yes"]


@pytest.mark.promise("A14")
def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.symlink_to("/dev/full")
    handler = jsonlog.setup(path, process="server")
    for _ in range(3):
        logging.getLogger("x").error("lost")
    path.unlink()
    logging.getLogger("x").error("kept")
    handler.flush()
    assert lines(path)[-1]["msg"] == "kept"


def test_a_directory_that_goes_away_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log" / "server.log"
    handler = jsonlog.setup(path, process="server")
    path.unlink()
    path.parent.rmdir()
    handler.close()
    logging.getLogger("x").error("lost")
    path.parent.mkdir()
    logging.getLogger("x").error("kept")
    handler.flush()
    assert [line["msg"] for line in lines(path)] == ["kept"]
    assert capsys.readouterr().err == ""
