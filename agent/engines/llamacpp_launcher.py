"""llama.cpp's server in a process of its own, with `llama-server`'s flags: `python -m agent.engines.llamacpp_launcher`.

It runs until SIGTERM or SIGINT and then exits 0 at once, running streams or not. A model that cannot be loaded or a
port that is taken is exit code 1, with the reason on stderr, and a flag it does not know is exit code 2. It needs
nothing of the agent's but words.
"""

import argparse
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engines.llamacpp_words import CARDS_SEEN, NO_CARD_ASKED, NO_CARD_SEEN

if TYPE_CHECKING:
    import xllamacpp


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; the exit code."""
    flags = parser().parse_args(argv)
    import xllamacpp

    # While the model loads the signals keep their default, so that SIGTERM ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(where_it_computes(flags.n_gpu_layers), file=sys.stderr, flush=True)
    try:
        server = xllamacpp.Server(to_params(flags))
    except (RuntimeError, OSError) as error:
        print(f"llama.cpp did not start: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    _wait_for_signal()
    sys.stderr.flush()
    # Not by the server's own teardown: it waits half a minute for streams that are cut anyway, holding the GIL.
    os._exit(0)


def _wait_for_signal() -> None:
    """Return at SIGTERM or SIGINT, whichever thread the kernel gives it to: llama.cpp's own threads get signals too."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    select.select([reader], [], [])


def where_it_computes(layers: int | None) -> str:
    """What can be known of it beforehand: llama.cpp tells where layers came to be only among thousands of lines."""
    import xllamacpp

    if layers == 0:
        return NO_CARD_ASKED
    try:
        kinds = xllamacpp.ggml_backend_dev_type
        cards = (kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU)
        seen = [str(device["name"]) for device in xllamacpp.get_device_info() if device["type"] in cards]
    except (RuntimeError, AttributeError, KeyError) as error:
        # Another version, or a driver in trouble: the model may load all the same.
        return f"compute: not known, for its devices cannot be listed: {error}"
    return f"{CARDS_SEEN}{', '.join(seen)}" if seen else NO_CARD_SEEN


def to_params(flags: argparse.Namespace) -> "xllamacpp.CommonParams":
    """llama.cpp's parameters for parsed flags."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(flags.model)
    params.hostnames, params.port = [flags.host], flags.port
    params.model_alias = {name for name in flags.alias.split(",") if name}
    params.n_ctx, params.n_parallel = flags.ctx_size, flags.parallel
    params.endpoint_metrics, params.endpoint_slots, params.ui = flags.metrics, False, False
    params.offline = True
    if flags.api_key_file is not None:
        params.api_keys = [line.strip() for line in flags.api_key_file.read_text().splitlines() if line.strip()]
    for name in _SAME_NAMES.split():
        if (value := getattr(flags, name)) is not None:
            setattr(params, name, value)
    if flags.threads is not None:
        params.cpuparams.n_threads = flags.threads
    if flags.threads_batch is not None:
        params.cpuparams_batch.n_threads = flags.threads_batch
    if flags.tensor_split:
        shares = [float(share) for share in flags.tensor_split.replace("/", ",").split(",")]
        params.tensor_split = shares + [0.0] * (len(params.tensor_split) - len(shares))
    if flags.cpu_moe or flags.n_cpu_moe:
        params.tensor_buft_overrides = experts_in_memory(None if flags.cpu_moe else flags.n_cpu_moe)
    _set_choices(params, flags)
    _set_switches(params, flags)
    _set_sampling(params, flags)
    return params


MOST_LAYERS = 4096
"""More layers than any model has."""


def experts_in_memory(layers: int | None) -> str:
    """llama.cpp's rule by which the experts of the first `layers` layers stay in memory, or those of all."""
    which = "[0-9]+" if layers is None else f"({'|'.join(map(str, range(min(layers, MOST_LAYERS))))})"
    return rf"blk\.{which}\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"


_SAME_NAMES = (
    "n_batch n_ubatch n_gpu_layers main_gpu n_predict n_keep cache_ram_mib n_cache_reuse n_threads_http timeout_read "
    "slot_prompt_similarity rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_slow "
    "yarn_beta_fast yarn_orig_ctx"
)
"""Flags whose `dest` is the parameter's own name."""

_SAMPLING = {
    "seed": "seed",
    "temp": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_last_n": "penalty_last_n",
    "repeat_penalty": "penalty_repeat",
    "presence_penalty": "penalty_present",
    "frequency_penalty": "penalty_freq",
}

_CHOICES = {
    "split_mode": ("llama_split_mode", "LLAMA_SPLIT_MODE_"),
    "pooling_type": ("llama_pooling_type", "LLAMA_POOLING_TYPE_"),
    "rope_scaling_type": ("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    "reasoning_format": ("common_reasoning_format", "COMMON_REASONING_FORMAT_"),
    "numa": ("ggml_numa_strategy", "GGML_NUMA_STRATEGY_"),
    "cache_type_k": ("ggml_type", "GGML_TYPE_"),
    "cache_type_v": ("ggml_type", "GGML_TYPE_"),
}
"""By flag: the enumeration and the beginning of its members' names."""

_FLASH = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def _set_choices(params: "xllamacpp.CommonParams", flags: argparse.Namespace) -> None:
    import xllamacpp

    for name, (enumeration, prefix) in _CHOICES.items():
        value = getattr(flags, name)
        if value is not None:
            member = prefix + value.upper().replace("-", "_")
            setattr(params, name, getattr(getattr(xllamacpp, enumeration), member))
    if flags.flash_attn is not None:
        member = "LLAMA_FLASH_ATTN_TYPE_" + _FLASH[flags.flash_attn]
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, member)


def _set_switches(params: "xllamacpp.CommonParams", flags: argparse.Namespace) -> None:
    import xllamacpp

    for name in ("no_kv_offload", "swa_full", "kv_unified", "check_tensors", "no_op_offload"):
        setattr(params, name, getattr(flags, name))
    params.use_jinja, params.warmup, params.cont_batching = flags.use_jinja, flags.warmup, flags.cont_batching
    params.ctx_shift = flags.ctx_shift
    if flags.embedding or flags.reranking:
        params.embedding = True
    if flags.reranking:
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    if flags.mlock or flags.no_mmap:
        kinds = {(True, False): "MMAP_MLOCK", (True, True): "MLOCK", (False, True): "NONE"}
        member = "LLAMA_LOAD_MODE_" + kinds[flags.mlock, flags.no_mmap]
        params.load_mode = getattr(xllamacpp.llama_load_mode, member)


def _set_sampling(params: "xllamacpp.CommonParams", flags: argparse.Namespace) -> None:
    for name, parameter in _SAMPLING.items():
        if (value := getattr(flags, name)) is not None:
            setattr(params.sampling, parameter, value)


def parser() -> argparse.ArgumentParser:
    """`llama-server`'s flags, as far as the agent and a profile may give them."""
    p = argparse.ArgumentParser(prog="llamacpp_launcher", description=__doc__, allow_abbrev=False)
    p.add_argument("--model", "-m", required=True, type=Path, help="GGUF file")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    p.add_argument("--alias", "-a", default="", help="names it is listed under, with commas between")
    p.add_argument("--ctx-size", "-c", type=int, default=4096, help="tokens of all slots together")
    p.add_argument("--parallel", "-np", type=int, default=1, help="slots")
    p.add_argument("--api-key-file", type=Path, help="a key a line")
    p.add_argument("--metrics", action="store_true")
    _add_tuning(p)
    _add_switches(p)
    return p


def _add_tuning(p: argparse.ArgumentParser) -> None:
    whole = (
        "--threads,-t --threads-batch,-tb --threads-http=n_threads_http --batch-size,-b=n_batch "
        "--ubatch-size,-ub=n_ubatch --n-gpu-layers,-ngl,--gpu-layers=n_gpu_layers --n-cpu-moe,-ncmoe "
        "--main-gpu,-mg=main_gpu --predict,-n,--n-predict=n_predict --keep=n_keep --cache-ram,-cram=cache_ram_mib "
        "--cache-reuse=n_cache_reuse --seed,-s --top-k --repeat-last-n --yarn-orig-ctx --timeout,-to=timeout_read"
    )
    number = (
        "--temp --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty --rope-freq-base "
        "--rope-freq-scale --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast "
        "--slot-prompt-similarity,-sps"
    )
    text = (
        "--tensor-split,-ts --split-mode,-sm --pooling=pooling_type --rope-scaling=rope_scaling_type "
        "--reasoning-format --numa --cache-type-k,-ctk --cache-type-v,-ctv"
    )
    for kind, flags in ((int, whole), (float, number), (str, text)):
        for flag in flags.split():
            spellings, _, dest = flag.partition("=")
            names = spellings.split(",")
            p.add_argument(*names, type=kind, dest=dest or names[0].lstrip("-").replace("-", "_"))
    p.add_argument("--flash-attn", "-fa", choices=sorted(_FLASH))
    # The prompt cache in host memory is llama.cpp's 8 GiB by default, which nobody reserved.
    p.set_defaults(cache_ram_mib=0)


def _add_switches(p: argparse.ArgumentParser) -> None:
    for names in (
        "--embedding,--embeddings",
        "--reranking,--rerank",
        "--mlock",
        "--no-mmap",
        "--no-kv-offload,-nkvo",
        "--swa-full",
        "--kv-unified,-kvu",
        "--check-tensors",
        "--no-op-offload",
        "--cpu-moe,-cmoe",
    ):
        p.add_argument(*names.split(","), action="store_true")
    for dest, on, off, default in (
        ("use_jinja", "--jinja", "--no-jinja", True),
        ("cont_batching", "--cont-batching,-cb", "--no-cont-batching,-nocb", True),
        ("ctx_shift", "--context-shift", "--no-context-shift", False),
        ("warmup", "--warmup", "--no-warmup", True),
    ):
        p.add_argument(*on.split(","), action="store_true", dest=dest, default=default)
        p.add_argument(*off.split(","), action="store_false", dest=dest)


if __name__ == "__main__":
    sys.exit(main())
