"""`llmgw ctl weights`: checks that are waited for, orphans with what they hold, and removals that say what goes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from llmgw.api import types as t
from tests.support.admin_server import running
from tests.support.fake_control import FakeControl

NEEDED, ORPHAN = "file:/m/needed.gguf", "file:/m/orphan.gguf"


class Checking(FakeControl):
    """A check that is half done when it is first looked at, and then over."""

    def __init__(self, verdict: str, *, intact: bool) -> None:
        super().__init__()
        self.looks = 0
        self.verdict = verdict
        self.intact = intact

    async def weights(self) -> Sequence[t.WeightsInfo]:
        self.looks += 1
        if self.looks == 1:
            change: dict[str, object] = {"phase": "checking", "checked_bytes": 49 * 10**6}
        else:
            change = {"verdict": self.verdict, "intact": self.intact}
        return [msgspec.structs.replace(info, **change) for info in await super().weights()]


def ctl(tmp_path: Path, control: FakeControl, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ctl against a server over `control`."""
    with running(tmp_path, control) as admin:
        return subprocess.run(
            [sys.executable, "-m", "llmgw.cli.main", "ctl", "--server", admin.unix, *arguments],
            env={key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "PYTHONPATH", "HOME")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


def test_a_check_is_asked_for_and_not_waited_for(tmp_path: Path) -> None:
    control = FakeControl()
    done = ctl(tmp_path, control, "weights", "verify", NEEDED)
    assert (done.returncode, done.stderr) == (0, f"{NEEDED}: checking 1 file, 98 MB; it is served meanwhile\n")
    assert control.calls[-1][:2] == ("verify_weights", NEEDED)


def test_a_check_that_is_waited_for_ends_with_its_verdict(tmp_path: Path) -> None:
    control = Checking("its file is what was published", intact=True)
    done = ctl(tmp_path, control, "weights", "verify", NEEDED, "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[1:] == ["checking 50% of 98 MB", f"{NEEDED}: its file is what was published"]


def test_a_file_that_differs_fails_the_wait(tmp_path: Path) -> None:
    verdict = "m.gguf of 1 file is not what was published: removed and fetched again"
    done = ctl(tmp_path, Checking(verdict, intact=False), "weights", "verify", NEEDED, "--wait")
    assert done.returncode != 0
    assert verdict in done.stderr


def test_the_list_says_what_is_checked_and_what_was_found(tmp_path: Path) -> None:
    control = Checking("its file is what was published", intact=True)
    assert "checking 50% of 98 MB" in ctl(tmp_path, control, "weights").stdout
    assert "its file is what was published" in ctl(tmp_path, control, "weights").stdout


def test_orphans_with_their_total(tmp_path: Path) -> None:
    done = ctl(tmp_path, FakeControl(), "weights", "orphans")
    assert done.returncode == 0, done.stderr
    assert ORPHAN in done.stdout
    assert NEEDED not in done.stdout
    assert "never" in done.stdout
    assert done.stderr == "1 orphan holds 98 MB; `llmgw ctl weights remove --orphans` removes them\n"
    document = json.loads(ctl(tmp_path, FakeControl(), "--json", "weights", "orphans").stdout)
    assert (document["total_bytes"], document["orphans"][0]["source"]) == (98_000_000, ORPHAN)


def test_removing_all_orphans_names_the_ones_that_were_shown(tmp_path: Path) -> None:
    control = FakeControl()
    asked = ctl(tmp_path, control, "weights", "remove", "--orphans")
    assert asked.returncode != 0
    assert "--yes" in asked.stderr
    assert control.calls == []
    done = ctl(tmp_path, control, "--yes", "weights", "remove", "--orphans")
    assert (done.returncode, done.stderr) == (0, "1 orphan removed: 98 MB freed on the mirror\n")
    assert control.calls[-1][:2] == ("remove_orphans", ("orphan.gguf",))
    again = ctl(tmp_path, control, "--yes", "weights", "remove", "--orphans")
    assert (again.returncode, again.stderr) == (0, "no orphans: a model needs every set there is\n")


@pytest.mark.parametrize("arguments", [(), (ORPHAN, "--orphans")])
def test_one_set_or_all_orphans_and_not_both(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    control = FakeControl()
    done = ctl(tmp_path, control, "--yes", "weights", "remove", *arguments)
    assert done.returncode == 2
    assert "--orphans" in done.stderr
    assert control.calls == []
