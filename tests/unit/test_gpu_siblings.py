"""What drivers and exporters say when something is wrong: what can be read is kept, no card hides another."""

import math
from pathlib import Path

import pytest

from agent.command import ToolResult, run_tool
from agent.discovery.completing import completed
from agent.discovery.continuity import carried_on
from agent.discovery.dcgm import Profile, parse_profiles
from agent.discovery.exposition import parse_line, samples
from agent.discovery.gpu import ReaderFailed
from agent.discovery.kernel_log import parse_record
from agent.discovery.nvidia_smi import FACTS, NvidiaSmi, parse_cards, parse_samples
from agent.discovery.smi import MAX_OUTPUT_BYTES, Smi, lost_cards
from agent.discovery.smi_list import parse_list
from agent.discovery.smi_table import SmiTable
from agent.discovery.smi_xml import SmiXml, parse_document
from agent.discovery.smi_xml import parse_cards as parse_xml_cards
from agent.discovery.smi_xml import parse_samples as parse_xml_samples
from agent.discovery.topology import read_topology
from agent.discovery.words import broken, figure, said
from agent.sensors import Meter
from tests.support.gpu_files import MIB, Tool, own

HEALTHY = "1, GPU-b, NVIDIA H100 80GB HBM3, 81559, 37, 550.1, 9.0, Disabled, 00000000:1A:00.0\n"
WARNING = "WARNING: infoROM is corrupted at gpu 0000:19:00.0\n"
CSV = f"--query-gpu={','.join(FACTS)}"


class TestRows:
    @pytest.mark.parametrize(
        "row",
        [
            "0, GPU-a, NVIDIA H100 80GB HBM3, [Unknown Error], [Unknown Error], 550.1, 9.0, [N/A], 00000000:19:00.0",
            "0, GPU-a, NVIDIA H100 80GB HBM3, ERR!, ERR!, 550.1, 9.0, ERR!, 00000000:19:00.0",
            "0, GPU-a, [GPU is lost], [GPU is lost], [GPU is lost], 550.1, [GPU is lost], [N/A], 00000000:19:00.0",
            "0, GPU-a, NVIDIA H100 80GB HBM3, 81559, [Timeout], 550.1, 9.0, Disabled, 00000000:19:00.0",
            "0, GPU-a, NVIDIA H100 80GB HBM3, [GPU requires reset], 0, 550.1, 9.0, [N/A], 00000000:19:00.0",
        ],
    )
    def test_a_card_whose_vital_figures_are_errors_takes_no_work(self, row: str) -> None:
        broken_card, healthy = parse_cards(f"{row}\n{HEALTHY}", FACTS).cards
        assert (broken_card.uuid, broken_card.healthy, broken_card.memory_total_bytes) == ("GPU-a", False, None)
        assert broken_card.problem
        assert "[" not in broken_card.name + broken_card.gpu_class
        assert (healthy.healthy, healthy.memory_total_bytes) == (True, 81559 * MIB)

    @pytest.mark.parametrize(
        "row",
        [
            "0, GPU-a, NVIDIA H100 80GB",  # cut off
            "0, GPU-a, NVIDIA H100 80GB HBM3, 81559, 37, 550.1, 9.0, Disabled, 00000000:19:00.0, 7",
            "0, GPU-a, NVIDIA H100 80GB HBM3, 81.559,00, 37, 550.1, 9.0, Disabled, 00000000:19:00.0",  # , for .
            "null, GPU-a, NVIDIA H100 80GB HBM3, 81559, 37, 550.1, 9.0, Disabled, 00000000:19:00.0",
            "Failed to query device: Unknown Error",
        ],
    )
    def test_a_row_that_is_none_is_named_and_its_card_is_not_taken_for_gone(self, row: str) -> None:
        before = parse_cards(HEALTHY.replace("1, GPU-b", "0, GPU-a").replace("1A", "19") + HEALTHY, FACTS).cards
        now = parse_cards(f"{row}\n{HEALTHY}", FACTS)
        assert [card.uuid for card in now.cards] == ["GPU-b"]
        assert row[:12] in now.problems[0]
        kept = {card.uuid: card for card in carried_on(before, now, ()).cards}
        assert kept["GPU-a"].healthy

    def test_a_warning_is_told_and_does_not_keep_a_card_that_has_gone(self) -> None:
        before = parse_cards(HEALTHY.replace("1, GPU-b", "0, GPU-a").replace("1A", "19") + HEALTHY, FACTS).cards
        now = parse_cards(HEALTHY + WARNING, FACTS)
        assert now.problems == ("nvidia-smi warns: infoROM is corrupted at gpu 0000:19:00.0",)
        assert [card.healthy for card in carried_on(before, now, ()).cards if card.uuid == "GPU-a"] == [False]

    def test_line_ends_of_another_system_and_figures_with_units(self) -> None:
        text = HEALTHY.replace("81559, 37", "81559 MiB, 37 %").replace("\n", "\r\n")
        (card,) = parse_cards(text, FACTS).cards
        assert (card.memory_total_bytes, card.bus_id) == (81559 * MIB, "0000:1a:00.0")
        fields = ("uuid", "memory.used", "utilization.gpu", "memory.total")
        (sample,) = parse_samples("GPU-b, 4\u00a0MiB, 37\u00a0%, 81559\r\n", fields)
        assert (sample.memory_used_bytes, sample.utilization_percent) == (4 * MIB, 37.0)

    @pytest.mark.parametrize(
        "text", ["11,17 W", "٣٥", "0x1F", "1e9", "--", "N/A", "[N/A]", "[Function Not Found]", "∞", "1 234", "½"]
    )
    def test_what_is_no_figure_here_is_none(self, text: str) -> None:
        assert figure(text) in (None, 1.0 if text == "1 234" else None)

    @pytest.mark.parametrize(
        "text", ["[Function Not Found]", "[Not Found]", "N/A", "[GPU is lost]", "GPU is lost.", ""]
    )
    def test_whatever_stands_in_brackets_is_no_name(self, text: str) -> None:
        assert said(text) == ""
        assert broken(text) == ("lost" in text)


class TestTool:
    @pytest.mark.parametrize("code", [8, 10, 14, 15])
    def test_one_cards_trouble_in_the_exit_status_hides_no_other(self, code: int) -> None:
        reader = NvidiaSmi(Tool({CSV: ToolResult(code=code, output=HEALTHY + WARNING)}).smi)
        reader.open()
        assert [card.uuid for card in reader.cards().cards] == ["GPU-b"]
        xml = SmiXml(Tool({"-q -x": ToolResult(code=code, output=own("two_cards.xml") + WARNING)}).smi)
        xml.open()
        assert len(xml.sample()) == 2

    @pytest.mark.parametrize(
        "said_instead", ["", "An internal driver error occurred\nTry again\n", "<nvidia_smi_log>\n\n"]
    )
    def test_words_without_a_card_do_not_say_that_there_is_none(self, said_instead: str) -> None:
        for code in (0, 15):
            told = Tool(dict.fromkeys(("-q -x", CSV, ""), ToolResult(code=code, output=said_instead)))
            for reader in (SmiXml(told.smi), NvidiaSmi(told.smi), SmiTable(told.smi)):
                with pytest.raises(ReaderFailed):
                    reader.cards()

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            ("Unable to determine the device handle for gpu 0000:0B:00.0: GPU is lost.", "GPU is lost."),
            ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "Unknown Error"),
            ("Unable to determine the device handle for GPU2: 0000:0B:00.0: Unknown Error", "Unknown Error"),
            ("Unable to determine the device handle for GPU0000:0B:00.0: Not Found\r", "Not Found"),
            ("Unable to determine the device handle for GPU 00000000:0B:00.0:", ""),
        ],
    )
    def test_a_lost_card_in_the_words_of_every_driver(self, words: str, why: str) -> None:
        (lost,) = lost_cards(f"{words}\n{HEALTHY}")
        assert (lost.bus_id, lost.why) == ("0000:0b:00.0", why)
        reader = NvidiaSmi(Tool({CSV: ToolResult(code=15, output=f"{words}\n{HEALTHY}")}).smi)
        reading = reader.cards()
        assert ([card.uuid for card in reading.cards], len(reading.lost)) == (["GPU-b"], 1)

    def test_headings_are_underlined_where_nobody_sees_it(self) -> None:
        text = (
            "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
            "GPU0\t X \tNV18\tPXB\t0-47\t0\n"
            "GPU1\tNV18\t X \tSYS\t48-95\t1\n"
        )
        found = read_topology(Tool({"topo -m": text}).smi)
        assert (found[0].peers, found[1].peers) == ((1,), (0,))
        assert (found[0].numa_node, found[1].numa_node) == (0, 1)

    def test_what_sixteen_cards_say_is_read_whole(self, tmp_path: Path) -> None:
        """A megabyte and a half of XML, through a real process."""
        document = own("two_cards.xml")
        clocks = "<supported_clocks>" + "<value>1980 MHz</value>" * 60_000 + "</supported_clocks></gpu>"
        (tmp_path / "told.xml").write_text(document.replace("</gpu>", clocks, 1))
        assert 1024 * 1024 < (tmp_path / "told.xml").stat().st_size < MAX_OUTPUT_BYTES
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncat {tmp_path}/told.xml\n")
        tool.chmod(0o755)
        assert len(parse_document(Smi(str(tool)).say("-q", "-x")).gpus) == 2
        assert run_tool([str(tool)], timeout_s=10.0, max_bytes=MAX_OUTPUT_BYTES).code == 0

    def test_a_table_with_a_warning_below_is_a_table(self) -> None:
        table = (
            "| NVIDIA-SMI 550.1    Driver Version: 550.1    CUDA Version: 12.4 |\n"
            "|   0  NVIDIA A40          On  | 00000000:19:00.0 Off |          0 |\n"
            "| 30%   41C    P8    21W / 300W |    3MiB / 46068MiB |      0%      Default |\n"
        )
        reader = SmiTable(Tool({"": ToolResult(code=14, output=table + WARNING)}).smi)
        reader.open()
        assert [sample.temperature_c for sample in reader.sample()] == [41.0]

    @pytest.mark.parametrize(
        ("shown", "told", "gpu_class"),
        [
            ("NVIDIA RTX PRO 6000 Blac...", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-96g"),
            ("NVIDIA RTX PRO 6000 Blac...", "", "rtx-pro-6000-96g"),
            ("NVIDIA A100-SXM...", "", "a100-96g"),
            ("NVIDIA A40", "", "a40-96g"),
            ("NVIDIA GeForce RTX 40...", "", "40-96g"),
            ("NVIDIA GeForce RTX 30...", "", "30-96g"),
            ("NVIDIA GeForce RTX 4090...", "", "4090-96g"),
            ("NVIDIA GeForce RTX 4090 Lapt...", "", "4090-96g"),
        ],
    )
    def test_a_name_that_the_table_cuts_off_is_the_whole_one(self, shown: str, told: str, gpu_class: str) -> None:
        table = (
            f"|   0  {shown:<30}  On  | 00000000:19:00.0 Off |          0 |\n"
            "| 30%   41C    P8    21W / 300W |    3MiB / 97887MiB |      0%      Default |\n"
        )
        query = "GPU 00000000:19:00.0\n" + (f"    Product Name                          : {told}\n" if told else "")
        (card,) = SmiTable(Tool({"-q": query, "": table}).smi).cards().cards
        assert (card.gpu_class, "..." in card.name) == (gpu_class, False)


class TestDocuments:
    def test_names_of_processes_are_no_part_of_it(self) -> None:
        """The tool writes them as they are, and anybody may call a process anything."""
        processes = '<processes><process_info><process_name>a <b> & </gpu><gpu id="x"></process_name></process_info>'
        text = own("two_cards.xml").replace("</gpu>", f"{processes}</processes></gpu>", 1)
        document = parse_document(text)
        assert (len(document.gpus), document.problems, document.partial) == (2, (), False)
        cut = parse_document(text[: text.index("</process_name>")])
        assert (len(cut.gpus), cut.partial) == (1, True)

    @pytest.mark.parametrize("header", ["<attached_gpus>2</attached_gpus>", ""])
    def test_a_document_that_breaks_off_loses_no_card_for_good(self, header: str) -> None:
        text = own("two_cards.xml").replace("<attached_gpus>2</attached_gpus>", header)
        before = parse_xml_cards(parse_document(text)).cards
        for end in (text.index("</gpu>") + 6, text.rindex("<utilization>")):
            now = parse_xml_cards(parse_document(text[:end]))
            assert now.partial
            cards = carried_on(before, now, ()).cards
            assert {card.uuid for card in cards if card.healthy} == {card.uuid for card in before if card.healthy}

    def test_a_card_that_is_lost_while_it_is_described(self) -> None:
        text = own("two_cards.xml")
        first = parse_xml_cards(parse_document(text)).cards[0]
        gone = text.replace(f"<uuid>{first.uuid}</uuid>", "<uuid>GPU is lost</uuid>")
        now = parse_xml_cards(parse_document(gone))
        assert ([card.bus_id for card in now.lost], now.lost[0].why) == ([first.bus_id], "GPU is lost")
        (lost,) = [card for card in carried_on((first,), now, ()).cards if card.uuid == first.uuid]
        assert not lost.healthy
        assert "GPU is lost" in lost.problem

    def test_compute_instances_that_have_one_memory_are_not_promised_it_twice(self, tmp_path: Path) -> None:
        text = own("mig.xml")
        one = text[text.index("<mig_device><index>0") : text.index("<mig_device><index>1")]
        two = text[text.index("<mig_device><index>1") : text.index("</mig_devices>")]
        second = one.replace("<index>0", "<index>1").replace("compute_instance_id>0", "compute_instance_id>1")
        document = parse_document(text.replace(two, second))
        listed = parse_list(own("mig_list.txt"))
        reading = completed(parse_xml_cards(document, listed=listed), memory_bytes=1, topology=dict)
        parts = [card for card in reading.cards if card.parent]
        assert [card.index for card in parts] == [1001, 1101]
        assert {card.memory_total_bytes for card in parts} == {9984 * MIB // 2}
        assert all("together" in card.problem and card.healthy for card in parts)
        message = Meter(tmp_path, cards=lambda: reading.cards).message(parse_xml_samples(document, listed=listed))
        assert message is not None
        used = dict(zip(message.uuids, message.memory_used_bytes, strict=True))
        assert [math.isnan(used[card.uuid]) for card in parts] == [True, True]
        assert used["GPU-b"] == 4000 * MIB
        # One that has its GPU instance for itself has all of it.
        alone = completed(parse_xml_cards(parse_document(text), listed=listed), memory_bytes=1, topology=dict)
        assert [card.memory_total_bytes for card in alone.cards if card.parent] == [9984 * MIB, 40448 * MIB]

    def test_nothing_of_a_split_card_is_its_instances(self) -> None:
        text = own("mig.xml").replace("9984 MiB", "N/A").replace("11 MiB", "N/A")
        (first, *_) = [card for card in parse_xml_cards(parse_document(text)).cards if card.parent]
        assert (first.memory_total_bytes, bool(first.problem)) == (None, True)
        told = {sample.uuid: sample for sample in parse_xml_samples(parse_document(text))}
        assert told[first.uuid].memory_used_bytes is None


class TestExposition:
    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ('a{b="c"} 0.42 # {trace_id="x"} 0.67 1700000000.123', 0.42),
            ('a{b="c"} 0.42 1700000000.123 # {trace_id="x"} 0.67', 0.42),
            ("a 0.42 # {} 1", 0.42),
            ("a 0.42 1700000000.123", 0.42),
            ('a{b="# {"} 7', 7.0),
            ("a 0.42 soon", None),
            ("a 0x1p-2", None),
            ('a{b="c\\\\",d="e,\\"f\\"={}"} 1\r', 1.0),
            ("a +INF", float("inf")),
            ("a -inf", float("-inf")),
            ("a\t0.5", 0.5),
            ('{"a",b="c"} 0.42', 0.42),
            ('{"a"} 0.42 1700000000', 0.42),
            ('{ "a" , b="c}" } 0.42 # {} 1', 0.42),
            ('{b="c"} 0.42', None),
            ('{"a b"} 0.42', None),
            ('{"a"', None),
        ],
    )
    def test_lines(self, line: str, value: float | None) -> None:
        sample = parse_line(line)
        assert (None if sample is None else sample.value) == value

    def test_a_page_of_every_oddity(self) -> None:
        name = "DCGM_FI_PROF_SM_ACTIVE"
        text = "\r\n".join(
            (
                "# TYPE DCGM_FI_PROF_SM_ACTIVE gauge",
                f'{name}{{UUID="GPU-exemplar"}} 0.42 1700000000.5 # {{pod="x"}} 0.9',
                f'{name}{{UUID="GPU-twice"}} NaN',
                f'{name}{{UUID="GPU-twice",pod="b"}} 0.25',
                f'{name}{{UUID="GPU-twice",pod="c"}} 0.75',
                f'{name}{{UUID="GPU-infinite"}} +Inf',
                f'{name}{{UUID="GPU-hex"}} 0x1p-1',
                f'{name}{{UUID="GPU-percent"}} 42',
                f'{name}{{UUID="GPU-below"}} -0.0',
                f'{name}{{pod="line\\nbreak, \\"quoted\\" {{}}",UUID="GPU-pod"}} 1',
                f'{name}{{UUID="GPU-split",GPU_I_PROFILE="1g.10gb"}} 0.5',
                f'{name}{{UUID="GPU-long",pod="{"x" * 20_000}"}} 0.5',
                "# EOF",
            )
        )
        assert parse_profiles(text) == {
            "GPU-exemplar": Profile(sm_active_percent=42.0),
            "GPU-twice": Profile(sm_active_percent=25.0),
            "GPU-below": Profile(sm_active_percent=0.0),
            "GPU-pod": Profile(sm_active_percent=100.0),
        }
        assert str(parse_profiles(text)["GPU-below"].sm_active_percent) == "0.0"

    def test_a_page_as_long_as_is_taken(self) -> None:
        line = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 7\n'
        last = 'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-last"} 0.5'
        text = line * 50_000 + last
        assert parse_profiles(text) == {"GPU-last": Profile(sm_active_percent=50.0)}
        assert sum(1 for _ in samples(text)) == 50_001


@pytest.mark.parametrize(
    ("words", "bus"),
    [
        ("NVRM: Xid (PCI:0000:0b:00): 79, pid=1234, GPU has fallen off the bus.", "0000:0b:00.0"),
        ("NVRM: Xid (PCI:0000:0b:00 GPU-I:05): 31, pid=77, name=python, Ch 00000008", "0000:0b:00.0"),
        ("NVRM: Xid (0000:0b:00): 31, Ch 00000008", "0000:0b:00.0"),
        ("NVRM: Xid (PCI:0000:0b:00", None),
        ("NVRM: GPU 0000:0b:00.0: GPU has fallen off the bus.", None),
    ],
)
def test_errors_in_the_words_of_every_driver(words: str, bus: str | None) -> None:
    found = parse_record(f"4,1234,5000000,-;{words}")
    assert (None if found is None else found[0]) == bus
