"""A router that starts takes its place in the shared counters, or says that it cannot and counts alone."""

import errno
import fcntl
import logging
import os
from pathlib import Path

import pytest

from llmgw.core.layout import ServerLayout
from llmgw.router import counter_file, slots
from llmgw.router.counter_file import SLOTS
from llmgw.router.counters import Counters
from llmgw.router.process import _counters
from tests.support.limits import Clock, FakeRouter


@pytest.fixture
def layout(tmp_path: Path) -> ServerLayout:
    """A data directory without counters."""
    found = ServerLayout(data=tmp_path)
    found.run.mkdir()
    return found


def test_it_counts_with_the_others(layout: ServerLayout) -> None:
    first, second = _counters(layout), _counters(layout)
    assert first.shared
    assert second.shared
    assert first.slot != second.slot
    for counters in (first, second):
        slots.give_up(counters)
        counters.close()


def alone(layout: ServerLayout, caplog: pytest.LogCaptureFixture) -> str:
    """What is said by a router that counts for itself."""
    with caplog.at_level(logging.ERROR):
        counters = _counters(layout)
    assert not counters.shared
    counters.close()
    return caplog.messages[-1]


def test_without_a_place_for_the_file(layout: ServerLayout, caplog: pytest.LogCaptureFixture) -> None:
    layout.counters.mkdir()
    assert "each router limits for itself" in alone(layout, caplog)


def test_on_a_full_disk(
    layout: ServerLayout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert os.strerror(errno.ENOSPC) in alone(layout, caplog)
    assert [path.name for path in layout.run.iterdir()] == ["counters.lock"]


def test_while_another_process_keeps_the_file_for_itself(
    layout: ServerLayout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_file, "OPENING_S", 0.05)
    lock = counter_file._opening(layout.counters.with_name("counters.lock"))
    assert "has been opening" in alone(layout, caplog)
    os.close(lock)


def test_with_every_slot_taken(layout: ServerLayout, caplog: pytest.LogCaptureFixture) -> None:
    routers = [FakeRouter.start(layout.counters, slot, Clock(), os.getpid()) for slot in range(SLOTS)]
    assert "no slot" in alone(layout, caplog)
    for router in routers:
        router.counters.close()


def test_a_table_that_somebody_keeps_gives_no_rows_but_lets_on(
    layout: ServerLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes are needed to keep a lock from each other: see the tests with processes for rows."""

    def kept(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "somebody keeps it")

    counters = Counters.open(layout.counters)
    monkeypatch.setattr(fcntl, "lockf", kept)
    assert counters.find((1, 2), budgeted=False, now=0) is None
    assert not slots.claim(counters)
    counters.close()
