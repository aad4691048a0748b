"""How fast weights may move: what operators may set, what it does to a mirror, and how the surfaces say it."""

from pathlib import Path

import msgspec
import pytest

from llmgw.control import settings, views
from llmgw.control.live_rows import Moments, replica_row
from llmgw.control.settings_in_force import SettingsInForce
from llmgw.control.weights import sentence
from llmgw.control.weights_pace import KEYS, Pace, limited, limited_fetch
from llmgw.core.cluster import FetchProgress, ShardState
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.bring import QUEUED
from llmgw.mirror.service import Mirror
from tests.support.builders import a_replica, a_snapshot

FETCHING = SetStatus(id="s", source="hf:a/b", state=SetState.FETCHING, done_bytes=41 * 10**7, total_bytes=10**9)


def test_both_speeds_are_settings_without_a_limit_at_first() -> None:
    assert settings.pace({}) == Pace(0, 0)
    stored = {"weights.download_mb_s": b"20", "weights.serve_mb_s": b"0.5"}
    assert settings.pace(stored) == Pace(20, 0.5)
    assert settings.pace({**stored, "weights.serve_mb_s": b'"much"'}) == Pace(20, 0)
    assert set(KEYS.values()) <= settings.KINDS.keys()
    assert tuple(KEYS) == Pace._fields


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"-1", "-1 MB/s is neither 0, which is no limit, nor within 0.1 to 100,000"),
        (b"0.09", "0.09 MB/s is neither 0"),
        (b"100001", "100001 MB/s is neither 0"),
        (b'"20MB"', "is not a number"),
    ],
)
@pytest.mark.parametrize("key", KEYS.values())
def test_a_speed_that_cannot_be_is_refused_in_a_sentence(key: str, value: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        settings.decode(key, value)


def test_a_key_that_is_nearly_right_is_named() -> None:
    with pytest.raises(NotFound, match=r"did you mean weights\.download_mb_s"):
        settings.kind_of("weights.downloads_mb_s")


@pytest.mark.trio
async def test_what_was_read_is_in_force_on_the_mirror(tmp_path: Path) -> None:
    mirror, in_force = Mirror(tmp_path), SettingsInForce()
    in_force.take({"weights.download_mb_s": msgspec.Raw(b"20"), "weights.serve_mb_s": msgspec.Raw(b"0.1")})
    in_force.pace.apply(mirror)
    assert (mirror.downloads.bytes_s, mirror.serving.bytes_s) == (20_000_000, 100_000)
    in_force.take({})
    in_force.pace.apply(mirror)
    assert (mirror.downloads.bytes_s, mirror.serving.bytes_s) == (0, 0)


def test_a_set_under_way_says_that_it_is_limited_and_others_do_not() -> None:
    assert sentence(FETCHING, 20_000_000) == "the mirror fetches 41% of 1 GB, limited to 20 MB/s in all"
    assert sentence(FETCHING) == "the mirror fetches 41% of 1 GB"
    queued = msgspec.structs.replace(FETCHING, message=QUEUED)
    assert sentence(queued, 20_000_000) == f"on the mirror, {QUEUED}"
    checking = msgspec.structs.replace(FETCHING, state=SetState.CHECKING)
    assert sentence(checking, 20_000_000) == "the mirror checks 41% of 1 GB"
    assert limited(500_000) == "limited to 500 kB/s in all"


@pytest.mark.trio
async def test_a_replica_says_which_limit_its_weights_move_under(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    Pace(download_mb_s=20, serve_mb_s=100).apply(mirror)
    said = {phase: limited_fetch(mirror, FetchProgress(phase=phase)) for phase in ("mirror", "fetching", "checking")}
    assert said == {"mirror": "limited to 20 MB/s in all", "fetching": "limited to 100 MB/s in all", "checking": ""}
    assert limited_fetch(mirror, None) == ""


def test_a_replicas_progress_ends_with_its_limit() -> None:
    progress = FetchProgress(phase="fetching", done_bytes=40_000_000, total_bytes=98_000_000)
    replica = a_replica(state=ShardState.FETCHING, progress=progress)
    words = limited(100_000_000)
    info = views.replica_info(replica, a_snapshot(replicas=(replica,)), limited=words)
    assert info.message == "fetching 40% of 98 MB, limited to 100 MB/s in all"
    row = replica_row(replica, 0, Moments(lambda: 0.0, lambda: 0.0), limited=words)
    assert row.message == "limited to 100 MB/s in all"
    failed = a_replica(state=ShardState.FETCHING, progress=progress, message="starting again")
    assert replica_row(failed, 0, Moments(lambda: 0.0, lambda: 0.0), limited=words).message == "starting again"
