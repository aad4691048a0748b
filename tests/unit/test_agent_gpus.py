"""Cards: what drivers and tools say, down to what they do not say."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.command import ToolFailed, ToolResult
from agent.discovery.completing import completed
from agent.discovery.gpu import CardReading, ReaderFailed, without_skipped
from agent.discovery.gpu_class import gpu_class
from agent.discovery.nameless import name_of
from agent.discovery.nvidia_smi import FACTS, FIGURES, OLD_FACTS, OLD_FIGURES, NvidiaSmi, parse_cards, parse_samples
from agent.discovery.nvml import Nvml
from agent.discovery.smi import Smi

MIB = 1024 * 1024
C17_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "utilization.gpu")


@pytest.mark.parametrize(
    ("name", "mib", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80g"),
        ("NVIDIA H100 PCIe", 81559, "h100-80g"),
        ("NVIDIA H100 NVL", 95830, "h100-94g"),
        ("NVIDIA H200", 143771, "h200-141g"),
        ("NVIDIA B200", 183359, "b200-180g"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96g"),
        ("NVIDIA GB10", None, "gb10"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g"),
        ("NVIDIA A100-PCIE-40GB", 40536, "a100-40g"),
        ("NVIDIA A10G", 23028, "a10g-24g"),
        ("NVIDIA A40", 46068, "a40-48g"),
        ("NVIDIA L40S", 46068, "l40s-48g"),
        ("Tesla T4", 15360, "t4-16g"),
        ("Tesla V100-SXM2-16GB", 16160, "v100-16g"),
        ("GRID V100D-8C", 8192, "v100d-8c-8g"),
        ("Quadro RTX 6000", 24220, "6000-24g"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx-pro-6000-96g"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "rtx-pro-6000-96g"),
        ("NVIDIA RTX 4000 SFF Ada Generation", 20475, "4000-sff-ada-20g"),
        ("NVIDIA RTX A6000", 49140, "a6000-48g"),
        ("NVIDIA GeForce RTX 3060", 12288, "3060-12g"),
        ("NVIDIA GeForce RTX 3080", 10240, "3080-10g"),
        ("NVIDIA GeForce RTX 5090", 32607, "5090-32g"),
        ("GeForce GTX 1070 Ti", 4096, "1070-ti-4g"),
        ("Quadro P400", 1998, "p400-2g"),
        ("Graphics Device", 5912, "gpu-6g"),
        ("", 1000, "gpu-1g"),
    ],
)
def test_a_class_is_the_model_and_the_size_on_the_box(name: str, mib: int | None, slug: str) -> None:
    assert gpu_class(name, None if mib is None else mib * MIB) == slug


@given(st.text(max_size=60), st.integers(min_value=1, max_value=2**50))
@settings(max_examples=200)
def test_a_class_is_always_a_slug(name: str, memory: int) -> None:
    slug = gpu_class(name, memory)
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert slug.endswith("g")


@pytest.mark.case("C17")
def test_a_split_card_is_shown_and_not_placeable() -> None:
    text = (
        "0, GPU-a, NVIDIA H100 80GB HBM3, [N/A], [Insufficient Permissions], [Insufficient Permissions]\n"
        "1, GPU-b, NVIDIA H100 80GB HBM3, 81559, 4, 37\n"
    )
    reading = parse_cards(text, C17_FIELDS)
    parent, healthy = reading.cards
    assert reading.problems == ()
    assert (parent.uuid, parent.memory_total_bytes) == ("GPU-a", None)
    assert parent.problem
    assert (healthy.memory_total_bytes, healthy.gpu_class, healthy.problem) == (81559 * MIB, "h100-80g", "")
    first, second = parse_samples(text, C17_FIELDS)
    assert (first.memory_used_bytes, first.utilization_percent) == (None, None)
    assert (second.memory_used_bytes, second.utilization_percent) == (4 * MIB, 37.0)


@pytest.mark.parametrize(
    "cell", ["[N/A]", "N/A", "Not Supported", "[Not Supported]", "ERR!", "[Unknown Error]", "", "nan", "1e9", "٣"]
)
def test_what_is_no_figure_is_absent_and_never_zero(cell: str) -> None:
    (sample,) = parse_samples(f"GPU-a, {cell}, {cell}, {cell}, {cell}", OLD_FIGURES)
    assert (sample.memory_used_bytes, sample.utilization_percent) == (None, None)
    assert (sample.temperature_c, sample.power_w) == (None, None)


def test_a_real_zero_and_units_are_read() -> None:
    (sample,) = parse_samples("GPU-a, 22 MiB, 0 %, 35, 11.17 W", OLD_FIGURES)
    assert (sample.memory_used_bytes, sample.utilization_percent) == (22 * MIB, 0.0)
    assert (sample.temperature_c, sample.power_w) == (35.0, 11.17)
    (absurd,) = parse_samples("GPU-a, 22, 140737488355328, 35, 11", OLD_FIGURES)
    assert absurd.utilization_percent is None


def test_a_card_in_error_takes_no_work_and_costs_only_itself() -> None:
    text = (
        "0, GPU-a, NVIDIA A40, 46068, ERR!, 525.125.06, 8.6, [N/A], 00000000:19:00.0\n"
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n"
        "2, GPU-c, NVIDIA A40, 46068, 3, 525.125.06, 8.6, [N/A], 00000000:1A:00.0\n"
        "3, GPU-d, NVIDIA H100 80GB HBM3, 81559, [N/A], 550.1, 9.0, Enabled, 00000000:1B:00.0\n"
    )
    reading = parse_cards(text, FACTS)
    assert [(card.uuid, card.healthy, card.memory_total_bytes) for card in reading.cards] == [
        ("GPU-a", False, None),
        ("GPU-c", True, 46068 * MIB),
        ("GPU-d", True, None),
    ]
    assert "MIG" in reading.cards[2].problem
    assert reading.problems == ()
    assert [(card.bus_id, card.why) for card in reading.lost] == [("0000:0b:00.0", "Unknown Error")]
    assert reading.partial


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_no_output_breaks_the_reader(text: str) -> None:
    parse_cards(text, FACTS)
    parse_samples(text, FIGURES)


def test_an_older_driver_is_asked_for_less() -> None:
    asked: list[str] = []

    def run(argv: list[str], *, timeout_s: float) -> ToolResult:
        asked.append(argv[1])
        if "compute_cap" in argv[1]:
            return ToolResult(code=2, output='Field "compute_cap" is not a valid field to query.')
        return ToolResult(code=0, output="0, GPU-a, Tesla T4, 15360, 0, 440.1\n")

    reader = NvidiaSmi(Smi(run=run))
    reader.open()
    assert reader.cards().cards[0].gpu_class == "t4-16g"
    assert asked[-1] == f"--query-gpu={','.join(OLD_FACTS)}"


@pytest.mark.parametrize("output", ["Failed to initialize NVML: Unknown Error", ""])
def test_a_tool_that_fails_is_a_sentence(output: str) -> None:
    reader = NvidiaSmi(Smi(run=lambda argv, timeout_s: ToolResult(code=255, output=output)))
    with pytest.raises(ReaderFailed, match="ended with 255"):
        reader.open()

    def missing(argv: list[str], *, timeout_s: float) -> ToolResult:
        raise ToolFailed("nvidia-smi cannot be started: No such file or directory")

    with pytest.raises(ReaderFailed, match="No such file"):
        NvidiaSmi(Smi(run=missing)).open()


class NvmlError(Exception):
    """As pynvml's."""


def fake_nvml(**calls: Any) -> Any:
    """A library with two cards: one plain, one as a GB10 says it (zeros and NOT_SUPPORTED)."""

    def absent(*_: object) -> None:
        raise NvmlError("Not Supported")

    plain: dict[str, Any] = {
        "NVMLError": NvmlError,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "550.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H100 80GB HBM3" if handle == 0 else "NVIDIA GB10",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMigMode": absent,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
            total=0 if handle else 81559 * MIB, used=0 if handle else 5 * MIB
        ),
        "nvmlDeviceGetUtilizationRates": absent,
        "nvmlDeviceGetPowerUsage": lambda handle: 71500,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 35,
    }
    return SimpleNamespace(**(plain | calls))


def test_nvml_figures_that_are_not_supported_are_absent() -> None:
    reader = Nvml(fake_nvml())
    reader.open()
    first, second = reader.cards().cards
    assert (first.gpu_class, first.memory_total_bytes, first.compute_capability) == ("h100-80g", 81559 * MIB, "9.0")
    assert (second.gpu_class, second.memory_total_bytes) == ("gb10", None)
    sample, unified = reader.sample()
    assert (sample.memory_used_bytes, sample.utilization_percent, sample.power_w) == (5 * MIB, None, 71.5)
    assert unified.memory_used_bytes is None
    reader.close()


def test_nvml_with_a_lost_or_split_card_keeps_the_others() -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise NvmlError("GPU is lost")
        return 0

    reader = Nvml(fake_nvml(nvmlDeviceGetHandleByIndex=handle, nvmlDeviceGetMigMode=lambda handle: (1, 1)))
    reader.open()
    reading = reader.cards()
    assert "GPU is lost" in reading.problems[0]
    (card,) = reading.cards
    assert card.memory_total_bytes is None
    assert "MIG" in card.problem
    assert len(reader.sample()) == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetName"])
@pytest.mark.parametrize("code", [1, 8, 10, 11, 15, 16, 17, 28, 999])
def test_a_card_that_does_not_answer_the_library_takes_no_work(call: str, code: int) -> None:
    """The chip that is given the node's memory, too: an error is not "it has none of its own"."""
    plain = fake_nvml()
    words = {28: "GPU not found"}.get(code, str(pynvml.NVMLError(code)))

    def failing(handle: int, *_: object) -> object:
        if handle == 1:
            raise NvmlError(words)
        return getattr(plain, call)(handle)

    reader = Nvml(fake_nvml(**{call: failing}))
    reader.open()
    healthy, silent = completed(reader.cards(), memory_bytes=100 * 1024 * MIB, topology=dict).cards
    assert (healthy.healthy, healthy.memory_total_bytes) == (True, 81559 * MIB)
    assert (silent.healthy, silent.memory_total_bytes, silent.unified) == (False, None, False)
    assert "takes no work until it answers" in silent.problem


@pytest.mark.parametrize("words", ["Not Supported", "Insufficient Permissions", "Function Not Found", "Not Found"])
def test_what_the_library_merely_does_not_have_is_no_error_of_the_card(words: str) -> None:
    def absent(*_: object) -> None:
        raise NvmlError(words)

    reader = Nvml(fake_nvml(nvmlDeviceGetMemoryInfo=absent, nvmlDeviceGetUtilizationRates=absent))
    reader.open()
    card, unified = completed(reader.cards(), memory_bytes=100 * MIB, topology=dict).cards
    assert (card.healthy, card.memory_total_bytes, bool(card.problem)) == (True, None, True)
    assert (unified.unified, unified.memory_total_bytes) == (True, 100 * MIB)


@pytest.mark.parametrize("told", ["", "N/A", "Not Supported", None])
def test_an_integrated_chip_without_a_uuid_is_read_through_the_library(told: str | None) -> None:
    """Its tool says next to nothing, and this reader comes first."""

    def uuid(handle: int) -> str:
        if told is None:
            raise NvmlError("Not Supported")
        return told

    def name(handle: int) -> str:
        return ("Orin (nvgpu)", "NVIDIA A40")[handle]

    reader = Nvml(fake_nvml(nvmlDeviceGetUUID=uuid, nvmlDeviceGetName=name))
    reader.open()
    reading = reader.cards()
    assert [card.uuid for card in reading.cards] == [name_of(0)]
    assert reading.problems == ("Card 1 cannot be read: the driver gives it no UUID.",)
    assert [sample.uuid for sample in reader.sample()] == [name_of(0)]
    assert list(reader.wear()) == [name_of(0)]


def test_a_chip_that_is_lost_is_not_named_anew() -> None:
    def lost(handle: int) -> str:
        raise NvmlError("GPU is lost")

    reader = Nvml(fake_nvml(nvmlDeviceGetUUID=lost, nvmlDeviceGetName=lambda _: "Orin (nvgpu)"))
    reader.open()
    reading = reader.cards()
    assert (reading.cards, reading.unread) == ((), 2)
    assert "GPU is lost" in reading.problems[0]


@pytest.mark.parametrize(("told_mib", "given_mib"), [(128 * 1024, 100 * 1024), (64 * 1024, 64 * 1024)])
def test_a_chip_that_tells_the_nodes_memory_as_its_own_has_it_once(told_mib: int, given_mib: int) -> None:
    memory = SimpleNamespace(total=told_mib * MIB, used=5 * MIB)
    for name in ("NVIDIA GB10", "NVIDIA Thor"):
        reader = Nvml(
            fake_nvml(
                nvmlDeviceGetCount=lambda: 1,
                nvmlDeviceGetMemoryInfo=lambda _: memory,
                nvmlDeviceGetName=lambda _, name=name: name,
            )
        )
        reader.open()
        (card,) = completed(reader.cards(), memory_bytes=100 * 1024 * MIB, topology=dict).cards
        assert (card.unified, card.memory_total_bytes) == (True, given_mib * MIB)
        assert card.gpu_class == name.removeprefix("NVIDIA ").lower()


def test_a_split_chip_is_not_given_the_nodes_memory_as_well() -> None:
    reader = Nvml(
        fake_nvml(
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetName=lambda _: "NVIDIA Thor",
            nvmlDeviceGetMigMode=lambda _: (1, 1),
        )
    )
    reader.open()
    (card,) = completed(reader.cards(), memory_bytes=100 * MIB, topology=dict).cards
    assert (card.unified, card.memory_total_bytes, "MIG" in card.problem) == (False, None, True)


def test_without_the_library_the_reader_says_so() -> None:
    def fail() -> None:
        raise NvmlError("NVML Shared Library Not Found")

    with pytest.raises(ReaderFailed, match="Not Found"):
        Nvml(fake_nvml(nvmlInit=fail)).open()


def test_cards_are_skipped_by_uuid_or_index() -> None:
    reading = parse_cards("\n".join(f"{i}, GPU-{i}, T4, 15360, 0, 1" for i in range(3)), OLD_FACTS)
    left = without_skipped(reading, ("GPU-0", "2"))
    assert [card.index for card in left.cards] == [1]
    assert without_skipped(CardReading(), ("x",)) == CardReading()
