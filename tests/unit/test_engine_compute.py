"""Where engines say that they compute: real-looking logs of several versions, hostile ones, and what is too little."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.compute import compute_message
from agent.engines.llamacpp_compute import LLAMACPP
from agent.engines.llamacpp_launcher import where_it_computes
from agent.engines.llamacpp_words import CARDS_SEEN, NO_CARD_ASKED, NO_CARD_SEEN
from agent.engines.python_compute import SGLANG, VLLM
from llmgw.agents.compute_told import compute_from
from llmgw.core.cluster import Replica, Shard, ShardState
from llmgw.core.compute import Compute, ComputeDevice, compute_words, less_than_asked, shortfall, shortfalls
from llmgw.core.shards import heard
from llmgw.wire.llmgw import v1 as wire

NEW = """\
0.00.299.268 I load_tensors: loading model tensors, this can take a while... (load_mode = none)
0.00.304.967 I load_tensors: offloaded 20/33 layers to GPU
0.00.304.967 I load_tensors:          CPU model buffer size =     0.00 MiB
0.00.304.968 I load_tensors:        CUDA0 model buffer size =     0.00 MiB
0.00.858.329 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.00.900.000 I load_tensors: offloading output layer to GPU
0.00.900.001 I load_tensors: offloading 32 repeating layers to GPU
0.00.900.002 I load_tensors: offloaded 33/33 layers to GPU
0.00.900.003 I load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
0.00.900.004 I load_tensors:        CUDA0 model buffer size =  4685.30 MiB
0.01.000.000 I llama_kv_cache:      CUDA0 KV buffer size =  4096.00 MiB
0.02.000.000 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.02.000.001 I load_tensors: offloaded 0/9 layers to GPU
0.02.000.002 I load_tensors:   CPU_Mapped model buffer size =    99.00 MiB
"""
"""A dry run first, the model, and a smaller one that helps it."""
OLD = """\
llm_load_tensors: ggml ctx size =    0.27 MiB
llm_load_tensors: offloading 32 repeating layers to GPU
llm_load_tensors: offloaded 32/33 layers to GPU
llm_load_tensors:        CPU buffer size =    70.31 MiB
llm_load_tensors:      CUDA0 buffer size =  2104.00 MiB
llm_load_tensors:      CUDA1 buffer size =  2104.50 MiB
"""
CPU_BUILD = """\
warning: no usable GPU found, --gpu-layers option will be ignored
warning: one possible reason is that llama.cpp was compiled without GPU support
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors:   CPU_Mapped model buffer size =   138.10 MiB
load_tensors:   CPU_REPACK model buffer size =    64.00 MiB
"""


def llamacpp(log: str, *, cards: int = 1, args: tuple[str, ...] = ()) -> Compute | None:
    """What llama.cpp's log says."""
    return LLAMACPP.report(log.splitlines(), cards=cards, args=args)


def test_llamacpp_says_layers_and_buffers_of_the_model_and_of_nothing_else() -> None:
    said = llamacpp(NEW)
    assert said is not None
    assert (said.layers_on_cards, said.layers, said.cpu_only, said.less_than_asked) == (33, 33, False, False)
    assert said.devices == (
        ComputeDevice(name="CPU_Mapped", held_bytes=int(281.81 * 2**20)),
        ComputeDevice(name="CUDA0", held_bytes=int(4685.30 * 2**20)),
    )
    assert compute_words(said) == "33 of 33 layers on cards (CPU_Mapped 295 MB, CUDA0 4.91 GB)"
    assert said.line.endswith("offloaded 33/33 layers to GPU")


def test_an_older_llamacpp_with_fewer_layers_than_asked_falls_short() -> None:
    said = llamacpp(OLD, cards=2)
    assert said is not None
    assert [device.name for device in said.devices] == ["CPU", "CUDA0", "CUDA1"]
    sentence = (
        "the engine put 32 of 33 layers on cards 0, 3, fewer than asked for "
        "(its log: llm_load_tensors: offloaded 32/33 layers to GPU)"
    )
    assert shortfall(said, (0, 3)) == sentence


@pytest.mark.parametrize(
    ("args", "short"),
    [
        ((), True),
        (("--n-gpu-layers", "999"), True),
        (("--n-gpu-layers", "33"), True),
        (("--n-gpu-layers", "32"), False),
        (("--n-gpu-layers", "0"), False),
        (("--n-gpu-layers", "-1"), False),
        (("--n-gpu-layers", "33", "--n-gpu-layers", "10"), False),
        (("--cpu-moe", "--n-cpu-moe", "30"), True),
    ],
)
def test_a_profile_may_ask_for_fewer_layers(args: tuple[str, ...], short: bool) -> None:
    said = llamacpp(OLD, args=args)
    assert said is not None
    assert said.less_than_asked is short


def test_experts_in_memory_are_no_fault() -> None:
    log = OLD.replace("32/33", "33/33").replace("CPU buffer size =    70.31", "CPU buffer size = 30000.00")
    said = llamacpp(log, args=("--cpu-moe",))
    assert said is not None
    assert (said.cpu_only, said.less_than_asked) == (False, False)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (CPU_BUILD, "warning: no usable GPU found, --gpu-layers option will be ignored"),
        (CPU_BUILD.split("\n", 2)[2], "load_tensors: CPU_Mapped model buffer size = 138.10 MiB"),
        (OLD.replace("32/33", "0/33"), "llm_load_tensors: offloaded 0/33 layers to GPU"),
        (
            "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\nsrv init: model loaded",
            "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
        ),
        (f"{NO_CARD_SEEN}\nlistening on x", NO_CARD_SEEN),
    ],
)
def test_llamacpp_on_the_cpu_is_a_fault_where_it_was_promised_a_card_and_not_asked_for_that(
    log: str, line: str
) -> None:
    said = llamacpp(log)
    assert said is not None
    assert (said.cpu_only, said.less_than_asked, compute_words(said)) == (True, True, "on the CPU")
    assert shortfall(said, (0,)) == f"the engine runs it on the CPU although it has card 0 (its log: {line})"
    for fine in (llamacpp(log, cards=0), llamacpp(log, args=("--n-gpu-layers", "0"))):
        assert fine is not None
        assert (fine.cpu_only, shortfall(fine, ())) == (True, "")


def test_our_launcher_names_the_cards_it_sees_and_no_layers() -> None:
    said = llamacpp(f"{CARDS_SEEN}CUDA0, CUDA1\nlistening on x")
    assert said is not None
    assert (said.layers, said.cpu_only, said.less_than_asked, compute_words(said)) == (
        None,
        False,
        False,
        "on CUDA0, CUDA1",
    )
    asked = llamacpp(NO_CARD_ASKED, args=("--n-gpu-layers", "0"))
    assert asked is not None
    assert (asked.cpu_only, asked.less_than_asked) == (True, False)


@pytest.mark.parametrize(
    ("log", "words", "short"),
    [
        (
            "INFO 11-30 10:00:00 [__init__.py:216] Automatically detected platform cuda.\n"
            "(Worker_TP0 pid=1) INFO Model loading took 14.9889 GiB and 3.2 seconds\n"
            "(Worker_TP1 pid=2) INFO Model loading took 14.9 GiB memory and 3.1 seconds\n"
            "INFO GPU KV cache size: 123,456 tokens",
            "on cuda 16.1 GB",
            False,
        ),
        (
            "INFO Initializing an LLM engine (v0.6.3) with config: model='m', device_config=cuda, seed=0\n"
            "INFO Loading model weights took 14.9888 GB\nINFO # GPU blocks: 27960, # CPU blocks: 2048",
            "on cuda 16.1 GB",
            False,
        ),
        ("INFO Automatically detected platform rocm.", "on rocm", False),
        ("INFO Automatically detected platform cpu.\nINFO GPU KV cache size: 10 tokens", "on the CPU", True),
    ],
)
def test_vllm_says_its_platform_and_what_it_loaded(log: str, words: str, short: bool) -> None:
    said = VLLM.report(log.splitlines(), cards=1, args=())
    assert said is not None
    assert (compute_words(said), said.less_than_asked) == (words, short)


@pytest.mark.parametrize(
    "log",
    [
        "",
        "INFO No platform detected, vLLM is running on UnspecifiedPlatform",
        "INFO Automatically detected platform unspecified.",
        "INFO GPU KV cache size: 123,456 tokens\nINFO Model loading took 14.99 GiB and 2 seconds",
    ],
)
def test_what_vllm_does_not_say_is_not_guessed(log: str) -> None:
    assert VLLM.report(log.splitlines(), cards=1, args=()) is None


def test_sglang_says_its_device_among_its_arguments() -> None:
    start = "[2026-11-30 10:00:00] server_args=ServerArgs(model_path='/m', " + "x=1, " * 300 + "api_key='k', "
    load = "[2026-11-30 TP1] Load weight end. type=L, dtype=torch.bfloat16, avail mem=63.21 GB, mem usage=14.98 GB."
    said = SGLANG.report([start + "device='cuda', tp_size=2)", load], cards=2, args=())
    assert said is not None
    assert (compute_words(said), said.less_than_asked) == ("on cuda 16.1 GB", False)
    assert said.line == "device='cuda'"
    slow = SGLANG.report(["server_args=ServerArgs(device='cpu')", load], cards=2, args=())
    assert slow is not None
    assert (slow.cpu_only, slow.less_than_asked) == (True, True)
    assert SGLANG.report([load], cards=2, args=()) is None
    assert SGLANG.report(["device='cpu' somewhere else"], cards=2, args=()) is None


ODD = st.one_of(
    st.text(max_size=300),
    st.sampled_from([*NEW.splitlines(), *OLD.splitlines(), *CPU_BUILD.splitlines()]),
    st.builds("load_tensors: offloaded {}/{} layers to GPU".format, st.integers(), st.integers()),
    st.builds("load_tensors:   {} model buffer size = {} MiB".format, st.text(max_size=90), st.floats()),
    st.builds(f"{CARDS_SEEN}{{}}".format, st.text(max_size=900)),
    st.builds("Model loading took {} GiB platform {}".format, st.floats(), st.text(max_size=40)),
)


@given(st.lists(ODD, max_size=200), st.integers(0, 8))
def test_whatever_is_in_a_log_what_is_told_is_bounded_and_arrives(lines: list[str], cards: int) -> None:
    for words in (LLAMACPP, VLLM, SGLANG):
        said = words.report(lines, cards=cards, args=())
        if said is None:
            continue
        told = compute_from(wire.ComputeSaid.parse(bytes(compute_message(said))))
        assert told is not None
        assert len(told.devices) <= 32
        assert all(len(device.name) <= 32 and device.name.isprintable() for device in told.devices)
        assert len(told.line) <= 200
        assert told.line.isprintable()
        assert told.less_than_asked is said.less_than_asked
        assert shortfall(told, range(cards)).count("\n") == 0


def test_a_hostile_node_tells_no_impossible_figures() -> None:
    said = wire.ComputeSaid(
        layers_on_cards=40,
        layers=33,
        devices=[wire.ComputeDeviceSaid(name="CUDA0\x1b[31m" + "x" * 500, held_bytes=2**63)] * 500,
        line="red\x1b[31m\u202e" * 500,
    )
    told = compute_from(said)
    assert told is not None
    assert (told.layers, told.layers_on_cards, len(told.devices)) == (None, None, 32)
    assert told.devices[0].held_bytes is None
    assert "\x1b" not in told.devices[0].name + told.line
    assert "\u202e" not in told.line
    assert compute_from(None) is None


def test_many_files_and_many_names_stay_few_devices() -> None:
    lines = [f"load_tensors:   CUDA{n} model buffer size =   1.00 MiB" for n in range(5000)]
    said = LLAMACPP.report(lines, cards=1, args=())
    assert said is not None
    assert len(said.devices) == 32
    parts = ["load_tensors:   CUDA0 model buffer size =   1.00 MiB"] * 3
    whole = LLAMACPP.report(parts, cards=1, args=())
    assert whole is not None
    assert whole.devices == (ComputeDevice(name="CUDA0", held_bytes=3 * 2**20),)


def test_what_is_unknown_is_no_fault() -> None:
    assert not less_than_asked(Compute(), cards=8, asked=None)
    assert compute_words(Compute()) == "not said"
    assert shortfall(msgspec.structs.replace(Compute(), cpu_only=True), (0,)) == ""


def test_our_launcher_says_what_its_build_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    import xllamacpp

    kinds = xllamacpp.ggml_backend_dev_type
    processor = {"name": "CPU", "type": kinds.GGML_BACKEND_DEVICE_TYPE_CPU}
    card = {"name": "CUDA0", "type": kinds.GGML_BACKEND_DEVICE_TYPE_GPU}
    monkeypatch.setattr(xllamacpp, "get_device_info", lambda: [card, processor])
    assert where_it_computes(999) == f"{CARDS_SEEN}CUDA0"
    assert where_it_computes(None) == f"{CARDS_SEEN}CUDA0"
    assert where_it_computes(0) == NO_CARD_ASKED
    monkeypatch.setattr(xllamacpp, "get_device_info", lambda: [processor])
    assert where_it_computes(999) == NO_CARD_SEEN
    monkeypatch.delattr(xllamacpp, "get_device_info")
    assert llamacpp(where_it_computes(999)) is None


def test_each_part_of_a_replica_keeps_what_its_own_engine_said() -> None:
    shards = (Shard(node="n1", cards=("GPU-1",)), Shard(node="n2", cards=("GPU-2",)))
    known = Replica(id="r", model="m", profile="p", engine="vllm", node="n1", spec_hash="h", shards=shards)
    head, worker = Compute(devices=(ComputeDevice(name="cuda"),)), Compute(cpu_only=True, less_than_asked=True)
    for node, said in (("n1", head), ("n2", worker)):
        told = msgspec.structs.replace(known, node=node, state=ShardState.READY, compute=said)
        known = heard(known, node, told)
    assert [shard.compute for shard in known.shards] == [head, worker]
    assert known.compute == head
    (found,) = shortfalls(known, known.shards, {"GPU-2": 1}.get)
    assert found == ("n2", "the engine runs it on the CPU although it has card 1")


def test_every_engine_says_it_or_is_not_asked() -> None:
    says = {name for name, engine in known_engines(AgentConfig(data="/x")).items() if engine.says_compute is not None}
    assert says == {"llamacpp", "vllm", "sglang"}
