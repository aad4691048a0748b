"""Ray, on which vLLM spans several nodes: one shard's part of a cluster that belongs to one replica and ends with it.

The head's shard is a launcher (`ray_launcher`) that runs Ray's head and, beside it, `vllm serve`; a worker's shard is
Ray alone, in which vLLM's processes are started from the head. All shards bear one token, derived from the replica's
key, without which Ray takes in nobody. Ray older than 2.52 knows no token and is not used.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.engines.base import Command, Launch
from agent.engines.loads import LoadMetrics
from agent.engines.python_engine import Installation, PythonEngine, directory_of, version_of
from llmgw.core.cluster import RUNTIME, EngineBuild
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

OLDEST = (2, 52)
"""The first Ray that asks for a token."""
OBJECT_STORE_BYTES = 2_000_000_000
"""Room for what shards hand one another besides what goes from card to card; vLLM uses little of it."""
SPARE_WORKER_PORTS = 8
"""Ports for Ray's own processes, beside two for each card's."""
HEAD_PORTS = 3
"""A head's own: for the others to join, its node manager, clients. A worker is asked at its node manager's."""
COMMON_PORTS = 5
"""Every shard's: object manager, three of the processes that Ray runs beside itself, metrics."""
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Cards are told to Ray by their index, since vLLM reads what Ray says of them as numbers.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    # Its many logs lie in the directory under /tmp, and of each it would keep gigabytes.
    "RAY_ROTATION_MAX_BYTES": "16777216",
    "RAY_ROTATION_BACKUP_COUNT": "1",
}


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Where one shard's part of Ray listens."""

    join: int
    """Of a head: where the others come in. Unused on a worker."""
    node_manager: int
    object_manager: int
    agents: tuple[int, int, int]
    """Of what Ray runs beside itself on every node: for runtime environments, and the dashboard's, gRPC and HTTP."""
    metrics: int
    clients: int
    """Of a head. Unused on a worker."""
    processes: tuple[int, ...]


def further_ports(spec: ShardSpec) -> int:
    """Ports a shard needs besides the one it is asked at."""
    if not spec.places:
        return 0
    return (0 if spec.rank else HEAD_PORTS) + COMMON_PORTS + SPARE_WORKER_PORTS + 2 * len(spec.card_uuids)


def ports_of(launch: Launch) -> Ports:
    """How a launch's ports are used. A worker is asked at its node manager's, a head at vLLM's."""
    own = 0 if launch.spec.rank else HEAD_PORTS
    join, manager, clients = launch.further[:own] or (0, launch.port, 0)
    objects, environments, grpc, http, metrics, *processes = launch.further[own:]
    return Ports(
        join=join,
        node_manager=manager,
        object_manager=objects,
        agents=(environments, grpc, http),
        metrics=metrics,
        clients=clients,
        processes=tuple(processes),
    )


def address_of(spec: ShardSpec) -> str:
    """The IP address at which the other shards reach this one, by which Ray and vLLM know it; raises InvalidInput."""
    host = spec.places[spec.rank].address
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise InvalidInput(
            f"{host}, this node's address, is not found ({error.strerror}): let address in agent.yaml be its IP",
            field="address",
        ) from error


def environment(launch: Launch) -> dict[str, str]:
    """What Ray, and all it starts, is told besides."""
    return {
        **QUIET,
        "RAY_TMPDIR": str(launch.shared),
        "VLLM_HOST_IP": address_of(launch.spec),
    }


def start_argv(ray: Path, launch: Launch) -> tuple[str, ...]:
    """`ray start` for a shard, which stays until it is ended or one of Ray's processes has."""
    spec, ports = launch.spec, ports_of(launch)
    joined = (
        ("--address", launch.head)
        if spec.rank
        else (
            "--head",
            *("--port", str(ports.join)),
            *("--ray-client-server-port", str(ports.clients)),
            *("--include-dashboard", "false"),
            "--disable-usage-stats",
        )
    )
    return (
        *(str(ray), "start", "--block"),
        *joined,
        *("--node-ip-address", address_of(spec)),
        *("--node-manager-port", str(ports.node_manager)),
        *("--object-manager-port", str(ports.object_manager)),
        *("--runtime-env-agent-port", str(ports.agents[0])),
        *("--dashboard-agent-grpc-port", str(ports.agents[1])),
        *("--dashboard-agent-listen-port", str(ports.agents[2])),
        *("--metrics-export-port", str(ports.metrics)),
        *("--worker-port-list", ",".join(str(port) for port in ports.processes)),
        *("--num-gpus", str(len(spec.card_uuids))),
        *("--num-cpus", str(max(1, len(spec.card_uuids)))),
        *("--object-store-memory", str(OBJECT_STORE_BYTES)),
    )


class Ray:
    """Adapter of the `ray` beside an engine that spans nodes: it runs a worker's shard."""

    name = RUNTIME
    needs_weights = True
    health_path = ""
    """A worker is asked by a connection to its node manager."""
    load_metrics: LoadMetrics | None = None
    says_compute = None

    def __init__(self, engine: PythonEngine) -> None:
        self._engine = engine

    def detect(self) -> EngineBuild | None:
        """Ray's version; none where the engine itself is not, or came without Ray."""
        try:
            ray, version = self._found()
        except InvalidInput:
            return None
        if not ray.is_file():
            return None
        why_not = "" if _new_enough(version) else f"ray {version} has no token; 2.52 or newer is needed"
        return EngineBuild(engine=self.name, version=version, usable=not why_not, why_not=why_not)

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """The engine's own flags, which the head alone is given; raises InvalidInput."""
        return self._engine.check_args(args, env)

    def program(self) -> Path:
        """Where Ray is; raises InvalidInput when it is not there, or too old."""
        ray, _ = self._found()
        build = self.detect()
        if build is None:
            raise InvalidInput(f"{ray} is not there: {self._engine.name} came without Ray", field="engine")
        if not build.usable:
            raise InvalidInput(build.why_not, field="engine")
        return ray

    def command(self, launch: Launch) -> Command:
        """`ray start` of a worker; raises InvalidInput when it is not installed or the weights are nothing to load."""
        directory_of(launch, self._engine.name)
        argv = start_argv(self.program(), launch)
        return Command(argv=argv, env={**self._engine.help_env(), **environment(launch)}, token_variable=TOKEN_VARIABLE)

    def help_argv(self) -> tuple[str, ...]:
        """What lists the flags of `ray start`; raises InvalidInput."""
        return (str(self.program()), "start", "--help")

    def help_env(self) -> Mapping[str, str]:
        """As its engine's."""
        return self._engine.help_env()

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """It answers no request itself."""
        return ()

    def _found(self) -> tuple[Path, str]:
        """Where Ray would be beside the engine, and its version; raises InvalidInput without the engine."""
        here: Installation = self._engine.installed()
        # Beside what a link in /usr/local/bin leads to, if it is not beside the link.
        beside = here.program.parent / "ray"
        ray = beside if beside.is_file() else here.program.resolve().parent / "ray"
        return ray, version_of(here.program, "ray") or "unknown"


def _new_enough(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) >= OLDEST
