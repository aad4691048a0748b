"""What real machines said of their cards is read as a correct reader must; absent stays absent."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.command import ToolResult
from agent.discovery.completing import completed
from agent.discovery.gpu import CardReading, ReaderFailed
from agent.discovery.host import meminfo
from agent.discovery.nvidia_smi import NvidiaSmi, sample_of
from agent.discovery.nvml_calls import Nvml as Calls
from agent.discovery.nvml_figures import memory
from agent.discovery.parts import cpu_nodes
from agent.discovery.proc_cards import parse_information
from agent.discovery.smi import Smi, fields_of, lost_cards, rows
from agent.discovery.smi_table import SmiTable, parse_query, parse_table
from agent.discovery.smi_xml import parse_cards, parse_document, parse_samples, parse_wear
from agent.discovery.topology import parse_topology
from agent.discovery.words import broken, figure, mebibytes, percent, said
from llmgw.core import throttle
from tests.support.gpu_files import MIB, Tool, real


@pytest.mark.parametrize(
    ("name", "gpu_class", "total_mib", "used_mib", "utilization"),
    [
        ("xml_a10g.xml", "a10g-24g", 23028, 22, 0.0),
        ("xml_tesla_t4.xml", "t4-16g", 15360, 1032, 0.0),
        ("xml_gtx_1070_ti.xml", "1070-ti-4g", 4096, 42, 0.0),
        ("xml_gtx_1660_ti.xml", "gpu-6g", 5912, 0, 0.0),
        ("xml_rtx_3060_v12.xml", "3060-12g", 12288, 116, 0.0),
        ("xml_rtx_3080_v13.xml", "3080-10g", 10240, 9184, 65.0),
        ("xml_rtx_4000_sff_ada_v13.xml", "4000-sff-ada-20g", 20475, 3534, 0.0),
        ("xml_quadro_p400.xml", "p400-2g", 1998, 0, 0.0),
    ],
)
def test_xml_of_whole_cards(name: str, gpu_class: str, total_mib: int, used_mib: int, utilization: float) -> None:
    document = parse_document(real(name))
    reading = parse_cards(document)
    (card,) = reading.cards
    (sample,) = parse_samples(document)
    assert reading.problems == ()
    assert (card.gpu_class, card.memory_total_bytes, card.problem) == (gpu_class, total_mib * MIB, "")
    assert (card.healthy, card.parent, card.bus_id[:4]) == (True, "", "0000")
    assert (sample.memory_used_bytes, sample.utilization_percent) == (used_mib * MIB, utilization)


def test_xml_power_lies_in_three_places() -> None:
    def power(name: str) -> tuple[float | None, float | None]:
        (sample,) = parse_samples(parse_document(real(name)))
        return sample.power_w, sample.power_limit_w

    assert power("xml_rtx_4000_sff_ada_v13.xml") == (8.81, 70.0)
    assert power("xml_gtx_1660_ti.xml") == (8.93, 130.0)
    assert power("xml_gtx_1070_ti.xml") == (None, None)
    assert power("xml_quadro_p400.xml")[0] is None
    assert power("xml_rtx_3060_v12.xml")[0] is not None


def test_xml_of_a_busy_memory_and_an_idle_chip() -> None:
    (sample,) = parse_samples(parse_document(real("xml_rtx_4000_sff_ada_v13.xml")))
    assert (sample.utilization_percent, sample.memory_utilization_percent) == (0.0, 37.0)
    assert sample.throttle_reasons == throttle.READ
    assert (sample.memory_temperature_c, sample.ecc_uncorrected) == (None, None)
    (wear,) = parse_wear(parse_document(real("xml_rtx_4000_sff_ada_v13.xml"))).values()
    assert (wear.remapped_rows, wear.remap_failed, wear.retired_pages_sbe) == (0, False, None)
    assert wear.problems() == ()


def test_xml_of_a_split_card_counts_what_is_there() -> None:
    document = parse_document(real("xml_a100_sxm4_v12.xml"))
    reading = parse_cards(document)
    parent, *instances = reading.cards
    assert (document.attached, len(document.gpus), reading.partial) == (4, 1, True)
    assert reading.problems == ("The driver counts 4 cards and describes 1.",)
    assert (parent.gpu_class, parent.memory_total_bytes, bool(parent.problem)) == ("a100-80g", None, True)
    assert [card.index for card in instances] == [1003, 1004, 1005, 1006]
    assert {card.memory_total_bytes for card in instances} == {19968 * MIB}
    assert {card.parent for card in instances} == {parent.uuid}
    assert len({card.uuid for card in reading.cards}) == 5
    board, *figures = parse_samples(document)
    assert (board.memory_used_bytes, board.utilization_percent, board.power_w) == (None, None, 67.03)
    assert [f.uuid for f in figures] == [card.uuid for card in instances]
    assert {(f.memory_used_bytes, f.temperature_c, f.memory_temperature_c) for f in figures} == {(12 * MIB, 27.0, 44.0)}
    assert {(f.utilization_percent, f.power_w, f.sm_active_percent) for f in figures} == {(None, None, None)}


def test_csv_of_a_chip_with_unified_memory() -> None:
    heading, row = real("csv_gb10_query.csv").splitlines()
    (cells,) = rows(row, fields_of(heading))
    sample = sample_of(cells, "GPU-gb10")
    assert (sample.memory_used_bytes, sample.utilization_percent) == (None, 0.0)
    assert (sample.power_w, sample.temperature_c) == (11.17, 35.0)


def test_csv_of_what_processes_hold_and_of_what_a_card_does_not_have() -> None:
    (cells,) = rows(real("csv_gb10_compute_apps.csv"), ("gpu_uuid", "pid", "process_name", "used_memory"))
    assert (cells["pid"], mebibytes(cells["used_memory"])) == ("114687", 19135 * MIB)
    cell = real("csv_gtx_not_supported_fan.csv").split(", ")[4]
    assert cell == "[Not Supported]"
    assert (figure(cell), percent(cell), said(cell), broken(cell)) == (None, None, "", False)


def test_nvml_of_a_chip_with_unified_memory() -> None:
    text = real("nvml_gb10.txt")
    figures = meminfo(text)
    assert figures["MemTotal"] == 127_600_748 * 1024
    zeros = SimpleNamespace(total=0, free=0, used=0)
    library = SimpleNamespace(NVMLError=RuntimeError, nvmlDeviceGetMemoryInfo=lambda handle: zeros)
    assert "total=0" in text
    assert memory(Calls(library), 0) is None  # type: ignore[arg-type]


def test_query_text_without_a_figure_for_memory() -> None:
    told = parse_query(real("query_q_gb10_fb.txt"))
    assert told == {"": {"FB Memory Usage/Total": "", "FB Memory Usage/Used": "", "FB Memory Usage/Free": ""}}


def test_table_of_a_card_in_error_beside_a_whole_one() -> None:
    broken, whole = parse_table(real("table_a40_err.txt"))
    assert (broken.errors, broken.memory_total_bytes, broken.memory_used_bytes) == (("utilization", "name"), None, None)
    assert (broken.utilization_percent, broken.power_w, broken.bus_id) == (None, None, "0000:19:00.0")
    assert (whole.errors, whole.memory_total_bytes, whole.memory_used_bytes) == ((), 46068 * MIB, 0)
    assert (whole.utilization_percent, whole.temperature_c, whole.power_w, whole.power_limit_w) == (0, 26, 12, 300)
    reading = SmiTable(Tool({"": real("table_a40_err.txt")}).smi).cards()
    assert [(card.healthy, card.memory_total_bytes) for card in reading.cards] == [(False, None), (True, 46068 * MIB)]
    assert reading.cards[1].gpu_class == "a40-48g"


def test_table_row_whose_power_alone_fails() -> None:
    (row,) = parse_table(real("rows_v100_power_err.txt"))
    assert (row.errors, row.memory_used_bytes, row.memory_total_bytes) == ((), 593 * MIB, 16160 * MIB)
    assert (row.utilization_percent, row.power_w, row.power_limit_w, row.bus_id) == (0, None, 250, "8ed0:00:00.0")


def test_table_of_an_integrated_chip_takes_host_memory() -> None:
    tool = Tool({"": real("table_jetson_orin.txt")})
    reader = SmiTable(tool.smi)
    reader.open()
    (card,) = reader.cards().cards
    (sample,) = reader.sample()
    assert (card.name, card.driver, card.bus_id, card.memory_total_bytes) == ("Orin (nvgpu)", "", "", None)
    assert card.gpu_class == "orin"
    assert (sample.memory_used_bytes, sample.utilization_percent, sample.temperature_c) == (None, None, None)
    assert sample.uuid == card.uuid
    (whole,) = completed(CardReading(cards=(card,)), memory_bytes=7 * 10**9, topology=dict).cards
    assert (whole.memory_total_bytes, whole.unified) == (7 * 10**9, True)
    assert "node's own" in whole.problem


def test_table_of_a_vgpu_is_a_share_and_not_the_card() -> None:
    (row,) = parse_table(real("table_vgpu_grid_v100d_8c.txt"))
    assert (row.memory_total_bytes, row.utilization_percent) == (8192 * MIB, 0.0)
    assert (row.temperature_c, row.power_w, row.errors) == (None, None, ())
    (card,) = SmiTable(Tool({"": real("table_vgpu_grid_v100d_8c.txt")}).smi).cards().cards
    assert card.gpu_class == "v100d-8c-8g"


def test_topology_of_an_nvswitch() -> None:
    cards = parse_topology(real("topo_8xh100_nvswitch.txt"))
    assert {index: len(card.peers) for index, card in cards.items()} == dict.fromkeys(range(8), 7)
    assert [card.numa_node for _, card in sorted(cards.items())] == [0] * 4 + [1] * 4


def test_topology_whose_numa_nodes_run_backwards() -> None:
    cards = parse_topology(real("topo_4xa100_numa_reversed.txt"))
    assert [cards[index].numa_node for index in range(4)] == [3, 2, 1, 0]
    assert cards[0].peers == (1, 2, 3)


def test_topology_without_nvlink_and_without_peer_access() -> None:
    cards = parse_topology(real("topo_2x5090_pcie.txt"))
    assert [(card.links, card.peers, card.numa_node) for card in cards.values()] == [
        ({"GPU1": "PHB"}, (), 0),
        ({"GPU0": "PHB"}, (), 0),
    ]
    access = parse_topology(real("topo_p2p_2x5090.txt"))
    assert [card.links for card in access.values()] == [{"GPU1": "GNS"}, {"GPU0": "GNS"}]


def test_a_tool_that_lost_the_driver_is_no_machine_without_cards() -> None:
    output = real("fail_nvml_unknown_error.txt")
    with pytest.raises(ReaderFailed, match="Unknown Error"):
        NvidiaSmi(Smi(run=lambda argv, timeout_s: ToolResult(code=255, output=output))).cards()


def test_a_card_off_the_bus_is_lost() -> None:
    (lost,) = lost_cards(real("fail_device_handle.txt"))
    assert (lost.bus_id, lost.why) == ("0000:0b:00.0", "Unknown Error")


def test_the_kernels_words_on_a_card() -> None:
    told = parse_information(real("proc_information_rtx3090.txt"))
    assert (told["Bus Location"], told["Device Minor"], told["GPU Excluded"]) == ("0000:01:00.0", "0", "No")
    assert told["GPU Firmware"] == "590.48.01"


def test_numa_nodes_of_memory_and_gpus_are_no_cpu_nodes(tmp_path: Path) -> None:
    for line in real("lscpu_gh200_numa.txt").splitlines()[1:]:
        name, _, cpus = line.removeprefix("NUMA ").partition(" CPU(s):")
        (node := tmp_path / "sys/devices/system/node" / name).mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus.strip()}\n")
    assert cpu_nodes(root=tmp_path) == 1
