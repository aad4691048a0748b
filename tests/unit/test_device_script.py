"""The script for a real card, run on a tape: what it would write there, and that it notices what is wrong."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from agent.discovery.nvml import Nvml
from tests.device.cards import Session, hold, report, write
from tests.device.matrix import PTX
from tests.support.gpu_files import OWN, Tool, own
from tests.support.nvml_tape import Recorder, TapeLibrary, load


def played(xml: str, *, works: bool = True) -> tuple[Session, Recorder]:
    """A session on the tape's fifth to eighth card, which rest until the load begins."""
    tape = TapeLibrary(load(OWN / "tape_8xh100.json"))
    tape.change("nvmlDeviceGetCount", 1)
    tape.change("nvmlDeviceGetPowerUsage|g0", 70_000)
    tape.change("nvmlDeviceGetUtilizationRates|g0", {"struct": {"gpu": 0, "memory": 0}})
    tape.change("nvmlDeviceGetMemoryInfo|g0", {"struct": {"total": 81559 * 2**20, "used": 2**20, "free": 0}})
    tape.change("nvmlGpmMetricsGet|g0", {"2": [0, 0.0], "3": [0, 0.0], "5": [0, 0.0], "10": [0, 0.0]})

    @contextlib.contextmanager
    def work() -> Iterator[None]:
        if works:
            tape.change("nvmlDeviceGetPowerUsage|g0", 650_000)
            tape.change("nvmlDeviceGetUtilizationRates|g0", {"struct": {"gpu": 100, "memory": 40}})
            tape.change("nvmlDeviceGetMemoryInfo|g0", {"struct": {"total": 81559 * 2**20, "used": 2**30, "free": 0}})
            tape.change("nvmlGpmMetricsGet|g0", {"2": [0, 97.5], "3": [0, 60.0], "5": [0, 0.0], "10": [0, 9.0]})
        yield

    recorder = Recorder(tape)
    session = hold(Nvml(recorder), Tool({"-q -x": xml}).smi, work, rounds=3, pause=lambda: None)
    return session, recorder


def one_card() -> str:
    """The tool's words on the same card."""
    text = own("two_cards.xml").replace(">2<", ">1<", 1).replace(">GPU-a<", ">GPU-h100-0<")
    return text[: text.index('  <gpu id="00000000:1A')] + "</nvidia_smi_log>"


def test_a_session_is_compared_told_and_written(tmp_path: Path) -> None:
    session, recorder = played(one_card())
    assert session.findings == []
    text = report(session)
    assert "| 0 NVIDIA H100 80GB HBM3 | sm_active_percent | 0 | - | 97.5 | - |" in text
    assert "at its power limit" in text
    write(session, recorder, tmp_path, "a test")
    tape = load(tmp_path / "tape_real.json")
    assert "GPU-h100-0" not in (tmp_path / "tape_real.json").read_text() + (tmp_path / "nvidia_smi.xml").read_text()
    reader = Nvml(TapeLibrary(tape))
    reader.open()
    assert [card.uuid for card in reader.cards().cards] == ["GPU-00000000-0000-0000-0000-000000000000"]
    assert reader.sample()[0].power_w == 70.0


def test_what_is_wrong_is_found() -> None:
    session, _ = played(one_card().replace("81559 MiB", "40000 MiB"), works=False)
    told = "\n".join(session.findings)
    assert "memory_total_bytes is" in told
    assert "power_w is 70.0 at rest and 70.0 under the matrix product" in told
    assert "sm_active_percent is 0.0 at rest" in told
    assert report(session).count("DIFFERS") == len(session.findings)


def test_the_kernel_is_text_for_the_drivers_own_compiler() -> None:
    assert PTX.count(b"{") == PTX.count(b"}") == 1
    assert b".entry product(" in PTX
