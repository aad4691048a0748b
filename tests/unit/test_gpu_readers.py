"""Readers on texts of our own: split cards, broken cards, lost cards; and no text ends discovery."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.command import ToolFailed, ToolResult
from agent.discovery.completing import completed
from agent.discovery.continuity import carried_on
from agent.discovery.cuda import toolkit, toolkits
from agent.discovery.gpu import CardReading, CardSample, LostCard, ReaderFailed, without_skipped
from agent.discovery.nameless import index_of, name_of
from agent.discovery.nvidia_smi import FACTS, NvidiaSmi, parse_cards
from agent.discovery.parts import machine_parts
from agent.discovery.proc_cards import known_cards, parse_information
from agent.discovery.smi_list import parse_list
from agent.discovery.smi_table import SmiTable, parse_query, parse_table
from agent.discovery.smi_xml import SmiXml, parse_document, parse_samples, parse_wear
from agent.discovery.smi_xml import parse_cards as parse_xml_cards
from agent.discovery.topology import Joined, parse_topology
from agent.engines.environment import build_environment
from agent.sensors import Meter
from llmgw.core import throttle
from llmgw.core.cluster import Card
from tests.support.gpu_files import MIB, Tool, own

LOST = (
    "Unable to determine the device handle for GPU1: 0000:0B:00.0: GPU is lost. Reboot the system to recover this GPU\n"
)


def a_card(uuid: str, bus: str = "", **facts: object) -> Card:
    return Card(uuid=uuid, index=0, name="NVIDIA A40", gpu_class="a40-48g", bus_id=bus, **facts)  # type: ignore[arg-type]


@pytest.mark.case("C17")
def test_a_split_card_is_shown_and_its_instances_take_work() -> None:
    tool = Tool({"-q -x": own("mig.xml"), "-L": own("mig_list.txt"), "--query-gpu=uuid": "GPU-a, 9.0\nGPU-b, 9.0\n"})
    reader = SmiXml(tool.smi)
    reader.open()
    parent, small, large, whole = reader.cards().cards
    assert (parent.uuid, parent.memory_total_bytes, parent.gpu_class, parent.healthy) == (
        "GPU-a",
        None,
        "h100-80g",
        True,
    )
    assert (small.uuid, small.index, small.memory_total_bytes) == ("MIG-a-first", 1001, 9984 * MIB)
    assert (large.uuid, large.index, large.gpu_class) == ("MIG-a-second", 1005, "h100-80g-mig-3g.40gb")
    assert (small.problem, large.parent, large.compute_capability) == ("", "GPU-a", "9.0")
    assert (whole.uuid, whole.memory_total_bytes, whole.gpu_class) == ("GPU-b", 81559 * MIB, "h100-80g")
    board, first, second, healthy = reader.sample()
    assert (board.memory_used_bytes, board.utilization_percent, board.power_w) == (None, None, 310.55)
    assert (first.memory_used_bytes, second.memory_used_bytes) == (11 * MIB, 20000 * MIB)
    assert (first.temperature_c, first.utilization_percent, first.power_w) == (41.0, None, None)
    assert (healthy.utilization_percent, healthy.memory_used_bytes) == (37.0, 4000 * MIB)
    left = without_skipped(reader.cards(), ["GPU-a"])
    assert [card.uuid for card in left.cards] == ["GPU-b"]


def test_instances_without_a_list_are_named_by_their_ids() -> None:
    reader = SmiXml(Tool({"-q -x": own("mig.xml")}).smi)
    _, small, _, _ = reader.cards().cards
    assert (small.uuid, small.gpu_class) == ("MIG-GPU-a/1/0", "h100-80g-mig-10gb")
    assert [sample.uuid for sample in reader.sample()][1:3] == ["MIG-GPU-a/1/0", "MIG-GPU-a/5/0"]


def test_a_card_in_error_beside_a_healthy_one() -> None:
    document = parse_document(own("two_cards.xml"))
    healthy, broken = parse_xml_cards(document).cards
    assert (healthy.memory_total_bytes, healthy.pcie_generation, healthy.pcie_width) == (81559 * MIB, 5, 16)
    assert (broken.healthy, broken.memory_total_bytes) == (False, None)
    assert "utilization" in broken.problem
    first, second = parse_samples(document)
    assert (first.power_w, first.power_limit_w, first.ecc_uncorrected) == (310.55, 700.0, 3)
    assert throttle.words(first.throttle_reasons) == ("at its power limit",)
    assert throttle.throttled(first.throttle_reasons) is True
    assert (second.memory_used_bytes, second.utilization_percent, second.temperature_c, second.power_w) == (None,) * 4


def test_a_broken_part_of_the_document_costs_one_card() -> None:
    text = own("two_cards.xml").replace("<uuid>GPU-b</uuid>", "<uuid>GPU-b</uid>")
    reading = parse_xml_cards(parse_document(text))
    assert [card.uuid for card in reading.cards] == ["GPU-a"]
    assert "0000:1a:00.0" in reading.problems[0]
    cut = parse_xml_cards(parse_document(own("two_cards.xml")[:-800]))
    assert [card.uuid for card in cut.cards] == ["GPU-a"]


def test_wear_in_words() -> None:
    worn = parse_wear(parse_document(own("worn.xml")))
    new, old = worn["GPU-a"], worn["GPU-b"]
    assert (new.remapped_rows, new.remap_pending, new.remap_failed, new.pcie_replays) == (5, True, True, 12000)
    assert (new.retired_pages, old.retired_pages, old.retirement_pending) == (None, 62, True)
    assert (old.remapped_rows, old.remap_failed, old.xid_count) == (None, None, None)
    assert "spares are used up" in new.problems()[0]
    assert len(new.problems()) == 3
    assert [problem.split(" ")[0] for problem in old.problems()] == ["60", "A"]


def test_of_two_cards_under_one_uuid_the_firsts_wear_is_told() -> None:
    worn = parse_wear(parse_document(own("worn.xml").replace("<uuid>GPU-b", "<uuid>GPU-a")))
    assert {uuid: wear.pcie_replays for uuid, wear in worn.items()} == {"GPU-a": 12000}


def test_instances_of_a_card_in_error_take_no_work() -> None:
    text = own("mig.xml").replace("<gpu_util>N/A", "<gpu_util>GPU requires reset", 1)
    reading = parse_xml_cards(parse_document(text), listed=parse_list(own("mig_list.txt")))
    parent, small, large, whole = completed(reading, memory_bytes=1, topology=dict).cards
    assert (parent.healthy, whole.healthy, small.gpu_class) == (False, True, "h100-80g-mig-1g.10gb")
    assert parent.problem
    for card in (small, large):
        assert (card.healthy, card.problem, card.memory_total_bytes) == (False, parent.problem, None)


def test_a_tool_that_names_a_lost_card_still_tells_of_the_others() -> None:
    document = own("two_cards.xml").replace(">2<", ">3<", 1)
    output = ToolResult(code=15, output=LOST + document)
    reader = SmiXml(Tool({"-q -x": output}).smi)
    reader.open()
    reading = reader.cards()
    assert [card.uuid for card in reading.cards] == ["GPU-a", "GPU-b"]
    assert [(card.bus_id, card.why) for card in reading.lost] == [
        ("0000:0b:00.0", "GPU is lost. Reboot the system to recover this GPU")
    ]


def test_a_lost_card_is_listed_and_takes_no_work() -> None:
    before = (a_card("GPU-a", "0000:0a:00.0"), a_card("GPU-b", "0000:0b:00.0", memory_total_bytes=1))
    alone = parse_cards(LOST, FACTS)
    now = carried_on(before, alone, ())
    kept, lost = now.cards
    assert (kept, lost.uuid, lost.healthy) == (before[0], "GPU-b", False)
    assert "is lost" in lost.problem
    assert any("listed as they were last" in problem for problem in now.problems)
    # The next reading is whole and has one card: the other stays lost, in the same words.
    later = carried_on(now.cards, CardReading(cards=(before[0],)), ())
    assert later.cards == (before[0], lost)


def test_a_card_the_driver_stops_listing_is_lost_and_a_removed_instance_is_not() -> None:
    parent = a_card("GPU-a", "0000:0a:00.0")
    instance = a_card("MIG-1", "0000:0a:00.0", parent="GPU-a")
    other = a_card("GPU-b", "0000:0b:00.0")
    now = carried_on((parent, instance, other), CardReading(cards=(parent,)), ())
    assert [(card.uuid, card.healthy) for card in now.cards] == [("GPU-a", True), ("GPU-b", False)]
    swapped = carried_on((other,), CardReading(cards=(a_card("GPU-new", "0000:0b:00.0"),)), ())
    assert [card.uuid for card in swapped.cards] == ["GPU-new"]


def test_a_card_never_seen_is_lost_by_the_kernels_word_only_when_the_driver_counts_it() -> None:
    known = (LostCard(bus_id="0000:0b:00.0", why="no answer", uuid="GPU-b", name="NVIDIA A40"),)
    here = (a_card("GPU-a", "0000:0a:00.0"),)
    assert carried_on((), CardReading(cards=here), known).cards == here
    counted = carried_on((), CardReading(cards=here, unread=1), known)
    assert [(card.uuid, card.healthy, card.gpu_class) for card in counted.cards[1:]] == [("GPU-b", False, "a40")]
    named = carried_on((), CardReading(cards=here, lost=(LostCard(bus_id="0000:0c:00.0", why="gone"),)), known)
    assert named.problems == ("The card at 0000:0c:00.0 is lost: gone.",)


def test_the_kernels_cards(tmp_path: Path) -> None:
    for bus, uuid, excluded in (("0000:0a:00.0", "GPU-a", "No"), ("0000:0b:00.0", "GPU-b", "Yes")):
        (directory := tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA A40\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\nGPU Excluded:\t {excluded}\n"
        (directory / "information").write_text(text)
    assert [(card.uuid, card.bus_id, card.name) for card in known_cards(tmp_path)] == [
        ("GPU-a", "0000:0a:00.0", "NVIDIA A40")
    ]
    assert known_cards(tmp_path / "none") == ()


def test_readings_are_completed(tmp_path: Path) -> None:
    (device := tmp_path / "sys/bus/pci/devices/0000:0a:00.0").mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    first = a_card("GPU-a", "0000:0a:00.0")
    second = Card(uuid="GPU-b", index=1, name="NVIDIA A40", gpu_class="a40-48g", bus_id="0000:0b:00.0")
    asked: list[int] = []

    def topology() -> Mapping[int, Joined]:
        asked.append(1)
        return {0: Joined(links={"GPU1": "NV4"}), 1: Joined(links={"GPU0": "NV4"}, numa_node=0)}

    one, two = completed(CardReading(cards=(first, second)), memory_bytes=1, topology=topology, root=tmp_path).cards
    assert (one.numa_node, one.nvlink_peers, two.numa_node, two.nvlink_peers) == (1, ("GPU-b",), 0, ("GPU-a",))
    assert (one.unified, one.memory_total_bytes) == (False, None)
    completed(CardReading(cards=(one, two)), memory_bytes=1, topology=topology)
    completed(CardReading(cards=(first,)), memory_bytes=1, topology=topology)
    assert asked == [1]


def test_a_card_that_comes_twice_is_one_card() -> None:
    reading = CardReading(cards=(a_card("GPU-a"), a_card("GPU-b"), a_card("GPU-a")))
    once = completed(reading, memory_bytes=1, topology=dict)
    assert [card.uuid for card in once.cards] == ["GPU-a", "GPU-b"]
    assert once.problems == ()


def test_two_cards_under_one_uuid_are_named_and_the_figures_are_the_first_ones(tmp_path: Path) -> None:
    """Boards whose memory was written over do that; engines could not be told which of them is meant."""
    one, two = a_card("GPU-a", "0000:0a:00.0"), a_card("GPU-a", "0000:0b:00.0")
    reading = completed(CardReading(cards=(one, two, a_card("GPU-c"))), memory_bytes=1, topology=dict)
    assert [card.bus_id for card in reading.cards if card.uuid == "GPU-a"] == ["0000:0a:00.0"]
    (problem,) = reading.problems
    assert problem == (
        "The cards at 0000:0a:00.0 and 0000:0b:00.0 both say that they are GPU-a: the second is left out."
    )
    told = [
        CardSample(uuid=uuid, utilization_percent=busy) for uuid, busy in (("GPU-a", 1), ("GPU-a", 2), ("GPU-c", 3))
    ]
    message = Meter(tmp_path, cards=lambda: reading.cards).message(told)
    assert message is not None
    assert dict(zip(message.uuids, message.utilization_percent, strict=True)) == {"GPU-a": 1.0, "GPU-c": 3.0}
    assert list(message.uuids) == ["GPU-a", "GPU-c"]


@pytest.mark.parametrize("reader", [SmiXml, NvidiaSmi])
def test_a_reader_that_names_no_card_leaves_the_node_to_the_next(reader: type[SmiXml] | type[NvidiaSmi]) -> None:
    """Some drivers list an integrated chip in every form, and name it in none but the last."""
    row = "0, [N/A], Orin (nvgpu), [N/A], [N/A], [N/A], 8.7, [N/A], [N/A]"
    document = own("two_cards.xml")
    nameless = document.replace("<uuid>GPU-a", "<uuid>N/A").replace("<uuid>GPU-b", "<uuid>N/A")
    with pytest.raises(ReaderFailed):
        reader(Tool({"-q -x": nameless, "--query-gpu": row}).smi).open()
    SmiXml(Tool({"-q -x": nameless.replace("<uuid>N/A", "<uuid>GPU is lost")}).smi).open()


def test_a_lost_card_keeps_no_index_that_another_has() -> None:
    here = (a_card("GPU-a", "0000:0a:00.0"),)
    now = carried_on((a_card("GPU-b", "0000:0b:00.0"),), CardReading(cards=here), ())
    assert [card.index for card in now.cards] == [0, 1]


def test_a_chip_without_a_uuid_is_given_to_engines_by_its_index(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0f" * 16 + "\n")
    name = name_of(2, root=tmp_path)
    assert name != name_of(2, root=tmp_path / "other")
    assert (index_of(name), index_of("GPU-00000000-0000")) == ("2", "")
    environment = build_environment(
        cluster_id="c",
        node="n",
        shard_id="s",
        home=tmp_path,
        card_uuids=[name, "GPU-x"],
        operator={},
        engine={},
        profile={},
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,GPU-x"


def test_the_last_reader_takes_identities_from_the_long_text() -> None:
    table = """|   0  NVIDIA GB10                    On  | 0000000F:01:00.0 Off |                  N/A |
| N/A   35C    P8              11W /  N/A | Not Supported        |      0%      Default |
"""
    reader = SmiTable(Tool({"-q": own("integrated_query.txt"), "": table}).smi)
    (card,) = reader.cards().cards
    assert (card.uuid, card.memory_total_bytes, card.bus_id) == ("GPU-gb10", None, "000f:01:00.0")
    (sample,) = reader.sample()
    assert (sample.uuid, sample.utilization_percent, sample.power_w, sample.power_limit_w) == ("GPU-gb10", 0, 11, None)


def cuda(root: Path, name: str, version: str = "", *, nvcc: bool = True) -> Path:
    directory = root / "usr/local" / name
    (directory / "bin").mkdir(parents=True)
    if nvcc:
        (directory / "bin/nvcc").touch()
    if version:
        (directory / "version.json").write_text(json.dumps({"cuda": {"version": version}}))
    return directory


def no_tool(argv: list[str], *, timeout_s: float) -> ToolResult:
    raise ToolFailed(f"{argv[0]} cannot be started")


def test_the_newest_toolkit_of_a_major_version_by_number(tmp_path: Path) -> None:
    for name in ("cuda-13.4", "cuda-13.10", "cuda-12.8"):
        cuda(tmp_path, name, f"{name.removeprefix('cuda-')}.1")
    cuda(tmp_path, "cuda-14.0", "14.0.0", nvcc=False)
    found = toolkits({}, root=tmp_path, run=no_tool)
    assert [kit.version for kit in found] == ["13.10", "12.8"]
    assert toolkit(14, {}, root=tmp_path, run=no_tool) is None
    home = cuda(tmp_path / "home", "own", "13.1.0")
    chosen = toolkit(13, {"CUDA_HOME": str(home)}, root=tmp_path, run=no_tool)
    assert chosen is not None
    assert (chosen.version, chosen.path) == ("13.1", home)
    wrong = toolkit(12, {"CUDA_HOME": str(home)}, root=tmp_path, run=no_tool)
    assert wrong is not None
    assert wrong.version == "12.8"


def test_a_toolkit_without_a_version_file_is_asked(tmp_path: Path) -> None:
    cuda(tmp_path, "cuda")

    def run(argv: list[str], *, timeout_s: float) -> ToolResult:
        assert argv == [str(tmp_path / "usr/local/cuda/bin/nvcc"), "--version"]
        return ToolResult(code=0, output="Cuda compilation tools, release 12.4, V12.4.131\n")

    assert [kit.version for kit in toolkits({}, root=tmp_path, run=run)] == ["12.4"]
    assert toolkits({}, root=tmp_path, run=no_tool) == ()


def test_disks_and_ports(tmp_path: Path) -> None:
    files = {
        "sys/block/nvme0n1/size": "7501476528",
        "sys/block/loop0/size": "100",
        "sys/class/net/eth0/device/vendor": "0x15b3",
        "sys/class/net/eth0/speed": "100000",
        "sys/class/net/eth0/operstate": "up",
        "sys/class/net/docker0/operstate": "up",
        "ib/mlx5_0/ports/1/state": "4: ACTIVE",
        "ib/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "ib/mlx5_1/ports/1/state": "1: DOWN",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    disk, network, fast, down = machine_parts(tmp_path / "ib", root=tmp_path)
    assert (disk.name, disk.size_bytes) == ("nvme0n1", 7501476528 * 512)
    assert (network.name, network.state, network.rate_bps) == ("eth0", "up", 100 * 10**9)
    assert (fast.name, fast.state, fast.rate_bps) == ("mlx5_0/1", "active", 400 * 10**9)
    assert (down.state, down.rate_bps) == ("down", 0)


CORPUS = [own(name) for name in ("two_cards.xml", "mig.xml", "mig_list.txt", "worn.xml", "integrated_query.txt")]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A text of the corpus with a piece cut out and another put in."""
    text = draw(st.sampled_from(CORPUS))
    start = draw(st.integers(0, len(text)))
    end = min(len(text), start + draw(st.integers(0, 200)))
    return text[:start] + draw(st.text(max_size=40)) + text[end:]


def read_all(text: str) -> None:
    document = parse_document(text)
    parse_xml_cards(document, listed=parse_list(text))
    parse_samples(document)
    parse_wear(document)
    carried_on((), parse_cards(text, FACTS), ())
    parse_table(text)
    parse_query(text)
    parse_topology(text)
    parse_information(text)


@given(st.one_of(st.text(max_size=400), damaged()))
@settings(max_examples=300, deadline=None)
def test_no_text_ends_discovery(text: str) -> None:
    read_all(text)


@given(st.text(alphabet=st.characters(exclude_characters="<>"), max_size=60), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_one_bad_card_never_hides_another(rubbish: str, place: int) -> None:
    first, gap, rest = own("two_cards.xml").partition('  <gpu id="00000000:1A')
    lines = (gap + rest).splitlines()
    at = 1 + place % (len(lines) - 3)
    lines[at] = rubbish
    cards = parse_xml_cards(parse_document(first + "\n".join(lines))).cards
    assert "GPU-a" in [card.uuid for card in cards]


def test_a_tool_that_fails_is_told_and_not_taken_for_no_cards() -> None:
    with pytest.raises(ReaderFailed, match="ended with 9"):
        SmiXml(Tool({"-q -x": ToolResult(code=9, output="No devices were found")}).smi).open()
    with pytest.raises(ReaderFailed, match="no card"):
        SmiXml(Tool({"-q -x": "hello"}).smi).open()
    with pytest.raises(ReaderFailed, match="no card"):
        SmiTable(Tool({"": "hello"}).smi).open()
