"""A dcgm-exporter's text, read tolerantly; the driver's own profile wins, and one without an exporter is left alone."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.discovery import dcgm
from agent.discovery.dcgm import ASK_EVERY_S, LEAVE_ALONE_S, Exporter, Profile, filled_in, parse_profiles
from agent.discovery.exposition import parse_line, samples
from agent.discovery.gpu import CardSample
from llmgw.transfer.errors import Interrupted
from tests.support.gpu_files import own, real


@pytest.mark.case("C19")
def test_no_value_is_absent_and_a_bad_line_costs_itself() -> None:
    profiles = parse_profiles(own("dcgm_messy.prom"))
    assert profiles == {
        "GPU-2": Profile(sm_active_percent=42.0, sm_occupancy_percent=25.0, tensor_active_percent=100.0),
        "GPU-5": Profile(sm_active_percent=0.0),
    }


def test_rows_of_instances_are_nobodys() -> None:
    text = real("dcgm_h100_mig_prof_only.prom")
    rows = list(samples(text))
    assert [row.labels["GPU_I_ID"] for row in rows] == ["7", "8", "9"]
    assert {row.value for row in rows} == {0.0}
    assert parse_profiles(text.replace("GR_ENGINE_ACTIVE", "SM_ACTIVE")) == {}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1.0),
        ("a{} 1e-3", 0.001),
        ('a{b="c"}1', 1.0),
        ('  a{b="c\\nd",} +Inf 17', float("inf")),
        ("a", None),
        ("# a 1", None),
        ('a{b="c} 1', None),
        ('a{b="c" d="e"} 1', None),
        ("a 1 2 3", None),
        ("a 1_0", None),
        ("a 0x10", None),
        ("", None),
    ],
)
def test_lines(line: str, value: float | None) -> None:
    sample = parse_line(line)
    assert (None if sample is None else sample.value) == value


@given(st.text(max_size=200), st.text(alphabet='{}",=\\ \n#aUID0.1', max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_it_or_hides_a_good_line(before: str, after: str) -> None:
    good = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-good"} 0.5'
    profiles = parse_profiles(f"{before}\n{good}\n{after}")
    assert profiles["GPU-good"].sm_active_percent is not None
    for profile in profiles.values():
        for value in (profile.sm_active_percent, profile.dram_active_percent):
            assert value is None or 0 <= value <= 100


def test_the_drivers_own_profile_wins() -> None:
    cards = [
        CardSample(uuid="GPU-a", sm_active_percent=10.0, profile_source="gpm"),
        CardSample(uuid="GPU-b", power_w=5.0),
        CardSample(uuid="GPU-c"),
    ]
    profile = Profile(sm_active_percent=90.0)
    one, two, three = filled_in(cards, {"GPU-a": profile, "GPU-b": profile})
    assert (one.sm_active_percent, one.profile_source) == (10.0, "gpm")
    assert (two.sm_active_percent, two.power_w, two.profile_source) == (90.0, 5.0, "dcgm")
    assert (three.sm_active_percent, three.profile_source) == (None, "")


class Counting(Exporter):
    """An exporter that is asked without a network."""

    def __init__(self, url: str = "http://127.0.0.1:9400/metrics", *, there: bool = True) -> None:
        self.asked = 0
        self.there = there
        super().__init__(url)

    async def _fetch(self) -> str:
        self.asked += 1
        if not self.there:
            raise Interrupted("nobody listens")
        return own("dcgm_messy.prom")


@pytest.mark.trio
async def test_one_that_is_not_there_is_asked_again_after_five_minutes(autojump_clock: trio.testing.MockClock) -> None:
    exporter = Counting(there=False)
    for _ in range(10):
        assert await exporter.profiles(["GPU-2"]) == {}
        await trio.sleep(5)
    assert exporter.asked == 1
    await trio.sleep(LEAVE_ALONE_S)
    exporter.there = True
    assert (await exporter.profiles(["GPU-2"]))["GPU-2"].sm_active_percent == 42.0
    assert exporter.asked == 2


@pytest.mark.trio
async def test_it_is_asked_once_for_all_cards_and_not_when_none_wants_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    exporter = Counting()
    assert await exporter.profiles([]) == {}
    assert exporter.asked == 0
    for _ in range(2):
        assert set(await exporter.profiles(["GPU-2", "GPU-5"])) == {"GPU-2", "GPU-5"}
    assert exporter.asked == 1
    await trio.sleep(ASK_EVERY_S)
    await exporter.profiles(["GPU-2"])
    assert exporter.asked == 2
    off = Counting(dcgm.OFF)
    assert await off.profiles(["GPU-2"]) == {}
    assert off.asked == 0


async def ask(answer: bytes, *, hang: bool = False) -> tuple[Exporter, dict[str, Profile]]:
    """An exporter's profiles from a server that says `answer` and, if it hangs, keeps the line open."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(4096)
            try:
                await stream.send_all(answer)
                if hang:
                    await trio.sleep_forever()
            except trio.BrokenResourceError:
                return

    exporter = Exporter(f"http://127.0.0.1:{port}/metrics")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        found = dict(await exporter.profiles(["GPU-2"]))
        nursery.cancel_scope.cancel()
    return exporter, found


@pytest.mark.trio
async def test_a_real_answer_over_http() -> None:
    body = own("dcgm_messy.prom").encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    _, found = await ask(head + body)
    assert found["GPU-2"].sm_active_percent == 42.0


@pytest.mark.trio
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"no http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"#" * 5_000_000,
    ],
)
async def test_an_answer_that_is_none_leaves_figures_absent(answer: bytes) -> None:
    exporter, found = await ask(answer)
    assert found == {}
    # It is left alone: nobody listens there any more, and nobody is asked.
    assert await exporter.profiles(["GPU-2"]) == {}


@pytest.mark.trio
async def test_an_exporter_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm, "TIMEOUT_S", 0.2)
    with trio.fail_after(60):
        _, found = await ask(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", hang=True)
    assert found == {}
