"""`agent.yaml`, typed. A key that is not here is refused by name; the sentences are the field docstrings below."""

import os
import re
import socket
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from llmgw.core.addresses import LOOPBACK, Address, parse_listen
from llmgw.core.catalog import check_name
from llmgw.core.config import load_config
from llmgw.core.engine_builds import INSTALLED, OWN, PACKAGED, check_build
from llmgw.core.errors import InvalidInput

STOP_ENGINES_VARIABLE = "LLMGW_STOP_ENGINES"
"""Set to 1 in the agent's environment, it stands for `stop_engines_on_exit: true`; the demo sets it."""

LLAMACPP_RELEASES = "https://api.github.com/repos/ggml-org/llama.cpp/releases/tags"
"""Where llama.cpp publishes its releases, with a checksum for every archive."""
MIRROR_WHEELS = "mirror:"
"""Begins the name of a directory of wheels on the mirror's machine."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_NODE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of `llmgw agent`."""

    data: str
    """Directory in which everything of this node lives. A relative path is taken from the file's directory."""
    name: str = ""
    """Name of the node, asked for when it joins; the machine's host name when empty."""
    servers: tuple[str, ...] = ()
    """`host:port` of every control plane's agent port; what the node learned when it joined, when empty."""
    address: str = ""
    """Host under which routers reach this node's engines. Empty is found out from the way to the servers."""
    engine_host: str = ""
    """Address engines listen on; `address` when empty."""
    engine_ports: str = "18000-18999"
    """First and last port given to engines."""
    llama_server: str = ""
    """Path of a `llama-server` binary. Empty takes one on PATH, else the one built into llmgw."""
    engine_paths: dict[str, str] = {}
    """Where engines are that are Python packages, by name: the program, or the directory of its environment
    (`vllm: /opt/vllm`), and for ComfyUI and Strata their own directory. Those on PATH are found by themselves."""
    comfyui_open: bool = False
    """Whether ComfyUI, which has no keys, listens where the other engines do; on loopback alone otherwise."""
    engines: dict[str, str] = {}
    """Versions of engines the agent installs, by name. With `VERSION@2026-09-24` one is made of what the index had on
    that day, else on the day after its release; `default` is the version whose flags llmgw was compared with, an empty
    one installs none. llama.cpp's is the tag of a release (`llamacpp: b10991`). What the cluster asks of the node
    (`llmgw ctl node build`) counts for more."""
    wheelhouse: str = ""
    """Directory of wheels that engines are installed from instead of the index, for sites without one; `mirror:/DIR`
    is a directory of the mirror's machine, fetched from there and checked."""
    llamacpp_variant: Literal["auto", "cpu", "vulkan", "cuda"] = "auto"
    """Which of a llama.cpp release's archives is taken; `auto` goes by the node's cards and their driver."""
    llamacpp_releases: str = LLAMACPP_RELEASES
    """Where a llama.cpp release is listed with its archives and their checksums, without the tag at the end."""
    llamacpp_archive: str = ""
    """Address of the llama.cpp archive itself, `{version}` standing for the tag; no listing is asked then, and
    `llamacpp_sha256` is needed."""
    llamacpp_sha256: str = ""
    """Checksum of that version's archive, in hex; it counts instead of the published one."""
    engine_env: dict[str, str] = {}
    """Variables every engine on this node gets besides, such as LD_LIBRARY_PATH for the CUDA libraries."""
    memory_reserve_gb: float = 0.0
    """Memory in GB (10**9 bytes) that is kept from engines and not reported as this node's."""
    skip_gpus: tuple[str, ...] = ()
    """Cards that are left alone, by UUID or index."""
    prefer_nvml: bool = True
    """Whether cards are read through NVML when it is there, before `nvidia-smi`."""
    dcgm_exporter: str = "http://127.0.0.1:9400/metrics"
    """Where a dcgm-exporter tells how much of each chip works, for cards whose driver does not; `off` asks none."""
    ib_root: str = "/sys/class/infiniband"
    """Directory in which InfiniBand devices are found."""
    stop_engines_on_exit: bool = False
    """Whether engines end with the agent on SIGTERM. Otherwise they go on and the next agent takes them over."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""

    @property
    def data_path(self) -> Path:
        """`data` as a path; absolute once loaded."""
        return Path(self.data)

    @property
    def ports(self) -> range:
        """Ports engines may get; raises InvalidInput."""
        match = _PORTS.fullmatch(self.engine_ports)
        if match:
            first, last = int(match[1]), int(match[2])
            if 1 <= first <= last <= 65535:
                return range(first, last + 1)
        raise InvalidInput(f"{self.engine_ports!r} is no range of ports such as 18000-18999", field="engine_ports")

    @property
    def memory_reserve_bytes(self) -> int:
        """`memory_reserve_gb` in bytes."""
        return int(self.memory_reserve_gb * 10**9)

    @property
    def ends_engines(self) -> bool:
        """Whether engines end with the agent, by the file or by the environment."""
        return self.stop_engines_on_exit or os.environ.get(STOP_ENGINES_VARIABLE, "") == "1"


def load_agent_config(path: Path) -> AgentConfig:
    """`agent.yaml`, checked, its paths absolute; raises InvalidInput naming file and key."""
    config = load_config(path, AgentConfig)
    if not config.data:
        raise InvalidInput("is empty; name the directory to keep everything in", field=f"{path}: data")
    config = msgspec.structs.replace(config, data=str(path.absolute().parent / config.data))
    check_agent_config(config)
    return config


def check_agent_config(config: AgentConfig) -> None:
    """Raise InvalidInput for the first key whose value cannot be."""
    _ = config.ports
    if config.name:
        check_name(config.name, field="name")
    for i, server in enumerate(config.servers):
        parse_listen(server, source=f"servers[{i}]")
    if not 0 <= config.memory_reserve_gb < 1e6:
        raise InvalidInput(f"{config.memory_reserve_gb} is not a size in GB", field="memory_reserve_gb")
    if config.dcgm_exporter != "off":
        _check_exporter(config.dcgm_exporter)
    for name in config.engine_paths:
        if name not in (*PACKAGED, *OWN):
            known = ", ".join((*PACKAGED, *OWN))
            raise InvalidInput(f"{name!r} is not one of {known}; llama.cpp's is llama_server", field="engine_paths")
    for name, version in config.engines.items():
        if version:
            check_build(name, version, field=f"engines.{name}")
        elif name not in (*INSTALLED, *OWN):
            raise InvalidInput(f"{name!r} is not one of {', '.join(INSTALLED)}", field="engines")
    _check_llamacpp(config)
    for name in config.engine_env:
        if not name or "=" in name or "\0" in name:
            raise InvalidInput(f"{name!r} is no name of a variable", field="engine_env")


def _check_llamacpp(config: AgentConfig) -> None:
    if config.llamacpp_sha256 and not _SHA256.fullmatch(config.llamacpp_sha256):
        raise InvalidInput(f"{config.llamacpp_sha256[:80]!r} is not 64 hex digits", field="llamacpp_sha256")
    addresses = {"llamacpp_releases": config.llamacpp_releases, "llamacpp_archive": config.llamacpp_archive}
    for name, value in addresses.items():
        if value and not _is_address(value):
            raise InvalidInput(f"{value[:120]!r} is no address: write https://HOST/PATH", field=name)
    if config.llamacpp_archive and not config.llamacpp_archive.endswith(".tar.gz"):
        raise InvalidInput("it does not end with .tar.gz, and nothing else is unpacked", field="llamacpp_archive")
    if config.wheelhouse.startswith(MIRROR_WHEELS) and not config.wheelhouse.startswith(f"{MIRROR_WHEELS}/"):
        raise InvalidInput("a directory on the mirror's machine is written mirror:/DIRECTORY", field="wheelhouse")


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _check_exporter(text: str) -> None:
    try:
        url = urlsplit(text)
        good = url.scheme == "http" and bool(url.hostname) and url.port != 0 and url.username is None
    except ValueError:
        good = False
    if not good:
        raise InvalidInput(f"{text!r} is neither off nor http://HOST:PORT/PATH", field="dcgm_exporter")


def node_name(config: AgentConfig) -> str:
    """The configured name, else the host's, in lower case and without what a name may not hold."""
    if config.name:
        return config.name
    plain = re.sub(r"[^a-z0-9._-]+", "-", socket.gethostname().split(".")[0].lower()).strip("-.")
    return plain if _NODE_NAME.fullmatch(plain) else "node"


def engine_address(config: AgentConfig, servers: tuple[str, ...]) -> str:
    """Host under which routers reach this node: configured, loopback beside loopback servers, else the way to one."""
    if config.address:
        return config.address
    addresses = [parse_listen(server, source="servers") for server in servers]
    outside = [address for address in addresses if not address.is_loopback]
    return _own_address(outside[0]) if outside else LOOPBACK


def _own_address(server: Address) -> str:
    """This machine's address on the way to `server`; no packet is sent. Loopback when there is no way."""
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(where)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return LOOPBACK
