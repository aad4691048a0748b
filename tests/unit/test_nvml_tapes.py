"""The NVML reader on sessions from tape: several generations, a split card, partial answers, failures, profiles."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.discovery import nvml, nvml_calls, nvml_figures, nvml_gpm, nvml_wear
from agent.discovery.completing import completed
from agent.discovery.gpu import ReaderFailed
from agent.discovery.nvml import Nvml
from llmgw.core import throttle
from tests.support.gpu_files import MIB, OWN
from tests.support.nvml_tape import Recorder, TapeError, TapeLibrary, load, save


def library(name: str) -> TapeLibrary:
    return TapeLibrary(load(OWN / name))


def opened(tape: TapeLibrary) -> Nvml:
    reader = Nvml(tape)
    reader.open()
    return reader


def test_eight_cards_on_a_switch() -> None:
    reader = opened(library("tape_8xh100.json"))
    reading = reader.cards()
    assert reading.problems == ()
    assert {card.gpu_class for card in reading.cards} == {"h100-80g"}
    assert [len(card.nvlink_peers or ()) for card in reading.cards] == [7] * 8
    first = reading.cards[0]
    assert (first.bus_id, first.pcie_generation, first.pcie_width) == ("0000:19:00.0", 5, 16)
    busy, *_, idle = reader.sample()
    assert (busy.utilization_percent, busy.memory_utilization_percent, busy.memory_temperature_c) == (98.0, 40.0, 68.0)
    assert (busy.power_w, busy.power_limit_w, busy.sm_clock_mhz) == (650.0, 700.0, 1980.0)
    assert throttle.words(busy.throttle_reasons) == ("at its power limit",)
    assert (idle.utilization_percent, throttle.throttled(idle.throttle_reasons)) == (0.0, False)
    assert reader.wear()["GPU-h100-0"].nvlink_replay_errors == 9
    reader.close()


def test_a_profile_appears_from_the_second_sample_and_zero_is_a_reading() -> None:
    tape = library("tape_8xh100.json")
    reader = opened(tape)
    assert {sample.profile_source for sample in reader.sample()} == {""}
    reader.sample()
    third = reader.sample()
    assert (third[0].sm_active_percent, third[0].tensor_active_percent, third[0].dram_active_percent) == (
        69.5,
        44.25,
        61,
    )
    assert (third[7].sm_active_percent, third[7].sm_occupancy_percent, third[7].profile_source) == (0.0, 0.0, "gpm")
    assert reader.sample()[0].sm_active_percent == 100.0
    # Every sample but the one that is kept was given back.
    assert tape.asked["nvmlGpmSampleAlloc"] - tape.asked["nvmlGpmSampleFree"] == 8
    reader.close()
    assert tape.asked["nvmlGpmSampleAlloc"] == tape.asked["nvmlGpmSampleFree"]


def test_a_card_that_is_split_or_gone_begins_its_profile_anew() -> None:
    tape = library("tape_8xh100.json")
    reader = opened(tape)
    reader.sample()
    tape.change("nvmlDeviceGetMigMode|g4", [1, 1])
    assert reader.sample()[4].profile_source == ""
    tape.change("nvmlDeviceGetMigMode|g4", [0, 0])
    assert reader.sample()[4].profile_source == ""
    assert reader.sample()[4].profile_source == "gpm"
    tape.change("nvmlGpmSampleGet|g4", {"error": "GPU is lost"}, 0)
    assert [reader.sample()[4].profile_source for _ in range(3)] == ["", "", "gpm"]


def test_cards_without_a_profile_are_asked_once() -> None:
    tape = library("tape_mixed.json")
    reader = opened(tape)
    for _ in range(5):
        reader.sample()
    # The split card is not asked while it is split, the lost one cannot be.
    assert tape.asked["nvmlGpmQueryDeviceSupport"] == 4
    assert tape.asked["nvmlGpmSampleAlloc"] == 5


def test_one_card_of_each_kind() -> None:
    reader = opened(library("tape_mixed.json"))
    reading = reader.cards()
    cards = {card.uuid: card for card in reading.cards}
    assert list(cards) == ["GPU-a100", "MIG-a100-1", "MIG-a100-9", "GPU-v100", "GPU-4090", "GPU-gb10", "GPU-h200"]
    assert (reading.unread, len(reading.problems)) == (1, 1)
    assert "GPU is lost" in reading.problems[0]
    parent, large, small = cards["GPU-a100"], cards["MIG-a100-1"], cards["MIG-a100-9"]
    assert (parent.memory_total_bytes, parent.gpu_class, "MIG" in parent.problem) == (None, "a100-80g", True)
    assert (large.gpu_class, large.index, large.parent) == ("a100-80g-mig-3g.40gb", 1001, "GPU-a100")
    assert (small.memory_total_bytes, small.index, small.problem) == (9728 * MIB, 1009, "")
    assert (cards["GPU-gb10"].memory_total_bytes, cards["GPU-gb10"].pcie_generation) == (None, None)
    assert {card.nvlink_peers for card in reading.cards} == {None}
    whole = completed(reading, memory_bytes=120 * 10**9, topology=dict)
    assert [card.uuid for card in whole.cards if card.unified] == ["GPU-gb10"]


def test_figures_of_each_kind() -> None:
    reader = opened(library("tape_mixed.json"))
    samples = {sample.uuid: sample for sample in reader.sample()}
    parent, instance = samples["GPU-a100"], samples["MIG-a100-9"]
    assert (parent.memory_used_bytes, parent.utilization_percent, parent.power_w) == (None, None, 67.03)
    assert (instance.memory_used_bytes, instance.temperature_c, instance.memory_temperature_c) == (
        3000 * MIB,
        27.0,
        44.0,
    )
    assert (instance.utilization_percent, instance.power_w, instance.profile_source) == (None, None, "")
    assert (instance.throttle_reasons, instance.ecc_uncorrected, instance.power_limit_w) == (0, None, None)
    old, desktop, unified = samples["GPU-v100"], samples["GPU-4090"], samples["GPU-gb10"]
    assert (old.power_w, old.power_limit_w, old.utilization_percent) == (None, 300.0, 100.0)
    assert throttle.words(old.throttle_reasons) == ("slowed down by hardware", "warm: the driver lowers clocks")
    assert (desktop.ecc_uncorrected, desktop.throttle_reasons) == (None, throttle.READ)
    assert (unified.memory_used_bytes, unified.memory_temperature_c, unified.utilization_percent) == (None, None, 3.0)


def test_what_wears_out_of_each_kind() -> None:
    reader = opened(library("tape_mixed.json"))
    worn = reader.wear()
    assert set(worn) == {"GPU-a100", "GPU-v100", "GPU-4090", "GPU-gb10", "GPU-h200"}
    assert (worn["GPU-a100"].remapped_rows, worn["GPU-a100"].remap_pending) == (1, True)
    assert (worn["GPU-v100"].retired_pages, worn["GPU-v100"].retirement_pending) == (65, True)
    desktop = worn["GPU-4090"]
    assert (desktop.remapped_rows, desktop.retired_pages, desktop.nvlink_replay_errors) == (None, None, None)
    assert desktop.problems() == ()
    assert (worn["GPU-h200"].xid_count, worn["GPU-h200"].xid_last, desktop.xid_count) == (1, 95, 0)
    assert worn["GPU-h200"].problems()[0].startswith("Xid 95:")
    assert reader.wear()["GPU-h200"].xid_count == 1


def test_of_two_cards_under_one_uuid_the_firsts_wear_and_links_are_told() -> None:
    tape = library("tape_8xh100.json")
    tape.change("nvmlDeviceGetUUID|g7", "GPU-h100-0")
    tape.change("nvmlDeviceGetPcieReplayCounter|g0", 11)
    tape.change("nvmlDeviceGetPcieReplayCounter|g7", 22)
    for other in range(1, 7):
        tape.change(f"nvmlDeviceGetP2PStatus|g7|g{other}|2", 1)
    reader = opened(tape)
    assert reader.wear()["GPU-h100-0"].pcie_replays == 11
    assert reader.cards().cards[0].nvlink_peers == tuple(f"GPU-h100-{other}" for other in range(1, 7))


def test_instances_of_a_card_in_error_take_no_work() -> None:
    tape = library("tape_mixed.json")
    tape.change("nvmlDeviceGetUtilizationRates|g0", {"error": "GPU requires reset"})
    parent, *instances = [card for card in opened(tape).cards().cards if "a100" in card.uuid]
    assert (parent.healthy, [card.parent for card in instances]) == (False, [parent.uuid] * 2)
    assert {(card.healthy, card.problem, card.memory_total_bytes) for card in instances} == {
        (False, parent.problem, None)
    }
    assert instances[0].gpu_class == "a100-80g-mig-3g.40gb"


def test_a_driver_that_goes_away_is_a_failure_and_not_no_cards() -> None:
    tape = library("tape_mixed.json")
    reader = opened(tape)
    tape.change("nvmlDeviceGetCount", {"error": "Driver Not Loaded"})
    for call in (reader.cards, reader.sample, reader.wear):
        with pytest.raises(ReaderFailed, match="Driver Not Loaded"):
            call()
    tape.change("nvmlInit", {"error": "NVML Shared Library Not Found"})
    with pytest.raises(ReaderFailed, match="Not Found"):
        Nvml(tape).open()


KEYS = sorted(load(OWN / "tape_mixed.json")["calls"])
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 2**63, 2**31, "text", "", [], [None], {}, {"error": "Unknown Error"}, {"struct": {}}, True, 1e308, "nan"]
)


@given(st.dictionaries(st.sampled_from(KEYS), ODD, max_size=12))
@settings(max_examples=300, deadline=None)
def test_no_answer_ends_discovery(changes: dict[str, Any]) -> None:
    tape = library("tape_mixed.json")
    for key, answer in changes.items():
        tape.change(key, answer)
    reader = Nvml(tape)
    try:
        reader.open()
        reader.cards()
        for _ in range(2):
            for sample in reader.sample():
                assert sample.utilization_percent is None or 0 <= sample.utilization_percent <= 100
                assert sample.sm_active_percent is None or 0 <= sample.sm_active_percent <= 100
        reader.wear()
        reader.close()
    except ReaderFailed:
        assert changes.keys() & {"nvmlInit", "nvmlDeviceGetCount"}


@given(st.dictionaries(st.sampled_from([key for key in KEYS if "|g1" in key or key.endswith("Index|1")]), ODD))
@settings(max_examples=150, deadline=None)
def test_one_bad_card_never_hides_another(changes: dict[str, Any]) -> None:
    tape = library("tape_mixed.json")
    for key, answer in changes.items():
        tape.change(key, answer)
    reader = opened(tape)
    others = {"GPU-a100", "MIG-a100-1", "MIG-a100-9", "GPU-4090", "GPU-gb10", "GPU-h200"}
    assert others <= {card.uuid for card in reader.cards().cards}
    assert others <= {sample.uuid for sample in reader.sample()}
    assert others - {"MIG-a100-1", "MIG-a100-9"} <= reader.wear().keys()


def test_numbers_and_structs_are_those_of_the_real_library() -> None:
    assert (nvml._P2P_NVLINK, nvml_gpm._VERSION) == (
        pynvml.NVML_P2P_CAPS_INDEX_NVLINK,
        pynvml.NVML_GPM_METRICS_GET_VERSION,
    )
    assert list(nvml_gpm._METRICS) == [
        pynvml.NVML_GPM_METRIC_SM_UTIL,
        pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    ]
    assert pynvml.nvmlEventTypeXidCriticalError == nvml_wear._XID_EVENT
    assert (nvml_wear._REPLAY, nvml_wear._RECOVERY) == (
        pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
        pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    )
    assert nvml_wear.MAX_LINKS == pynvml.NVML_NVLINK_MAX_LINKS
    assert (nvml_wear._SINGLE_BIT, nvml_wear._DOUBLE_BIT) == (
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    figures = nvml_figures
    assert (figures._CLOCK_SM, figures._CLOCK_MEMORY) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    assert (figures._UNCORRECTED, figures._SINCE_DRIVER, figures._MEMORY_TEMPERATURE_FIELD) == (
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        pynvml.NVML_FI_DEV_MEMORY_TEMP,
    )
    members = {name for name, _ in pynvml.c_nvmlValue_t._fields_}
    assert set(nvml_calls._MEMBERS.values()) <= members
    reasons = {
        throttle.POWER_CAP: pynvml.nvmlClocksEventReasonSwPowerCap,
        throttle.HW_SLOWDOWN: pynvml.nvmlClocksThrottleReasonHwSlowdown,
        throttle.SW_THERMAL: pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        throttle.HW_THERMAL: pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        throttle.POWER_BRAKE: pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
    assert all(ours == theirs for ours, theirs in reasons.items())
    # Every function that is called by name is one that the library has, but for the newest ones.
    names = {key.partition("|")[0] for key in KEYS}
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


def test_the_real_struct_of_metrics_takes_two_samples_and_is_read() -> None:
    library = TapeLibrary(load(OWN / "tape_8xh100.json"))

    def measured(query: Any) -> Any:
        assert (query.version, query.numMetrics) == (1, 4)
        for place in range(query.numMetrics):
            query.metrics[place].nvmlReturn = 3 if place == 1 else 0
            query.metrics[place].value = 10.0 * query.metrics[place].metricId
        return query

    real = {
        "c_nvmlGpmMetricsGet_t": pynvml.c_nvmlGpmMetricsGet_t,
        "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
        "nvmlGpmSampleGet": lambda handle, sample: sample,
        "nvmlGpmMetricsGet": measured,
    }
    for name, stand_in in real.items():
        setattr(library, name, stand_in)
    reader = opened(library)
    reader.sample()
    sample = reader.sample()[0]
    assert (sample.sm_active_percent, sample.sm_occupancy_percent) == (20.0, None)
    assert (sample.tensor_active_percent, sample.dram_active_percent) == (50.0, 100.0)


class Memory(ctypes.Structure):
    """As NVML's."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Support(ctypes.Structure):
    """As NVML's."""

    _fields_ = (("version", ctypes.c_uint), ("isSupportedDevice", ctypes.c_uint))


def real_like() -> Any:
    """A library of ctypes things, as pynvml is."""
    cells = [ctypes.c_int(number) for number in range(64)]
    taken = iter(cells[8:])

    def fail(*_: object) -> None:
        raise TapeError("Not Supported")

    def metrics(query: Any) -> Any:
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn, metric.value = 0, 12.5
        return query

    names = dict.fromkeys(("nvmlDeviceGetMigMode", "nvmlEventSetCreate", "nvmlDeviceGetRemappedRows"), fail)
    return SimpleNamespace(
        **names,
        NVMLError=TapeError,
        c_nvmlGpmMetricsGet_t=lambda: SimpleNamespace(
            metrics=[SimpleNamespace(metricId=0, nvmlReturn=1, value=0.0) for _ in range(8)]
        ),
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: ctypes.pointer(cells[index]),
        nvmlDeviceGetUUID=lambda handle: b"GPU-%d" % handle.contents.value,
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda handle: Memory(total=143771 * MIB, free=0, used=handle.contents.value * MIB),
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetTemperature=lambda handle, sensor: 30 + handle.contents.value,
        nvmlDeviceGetP2PStatus=lambda one, other, kind: 0,
        nvmlGpmQueryDeviceSupport=lambda handle: Support(version=1, isSupportedDevice=1),
        nvmlGpmSampleAlloc=lambda: ctypes.pointer(next(taken)),
        nvmlGpmSampleGet=lambda handle, sample: sample,
        nvmlGpmSampleFree=lambda sample: None,
        nvmlGpmMetricsGet=metrics,
    )


def test_what_is_recorded_replays_the_same(tmp_path: Path) -> None:
    recorder = Recorder(real_like())
    live = opened(recorder)  # type: ignore[arg-type]
    said = [live.cards(), live.sample(), live.sample(), live.wear()]
    live.close()
    save(recorder.tape("made in a test"), tmp_path / "tape.json")
    replayed = opened(TapeLibrary(load(tmp_path / "tape.json")))
    assert [replayed.cards(), replayed.sample(), replayed.sample(), replayed.wear()] == said
    second = replayed.sample()[1]
    assert (second.sm_active_percent, second.temperature_c, second.memory_used_bytes) == (12.5, 31.0, MIB)
