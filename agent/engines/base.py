"""The engine interface. One file an implementation; nothing else in the agent knows one engine from another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.engines.compute import ComputeWords
from agent.engines.loads import LoadMetrics
from llmgw.core.cluster import EngineBuild
from llmgw.wire.llmgw.v1 import ShardSpec


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All an engine needs to know to be started once."""

    spec: ShardSpec
    weights: Path | None
    """File or directory with the weights; none for an engine without any."""
    host: str
    """Address to listen on."""
    port: int
    key_file: Path
    """0600; the engine's key on its only line."""
    cpus: int
    """CPUs this node's engines may use."""
    card_bytes: int = 0
    """Memory of the smallest of its cards; 0 where none is told."""
    cache: Path | None = None
    """Directory that outlives the shard, for what an engine compiles."""
    further: tuple[int, ...] = ()
    """More ports of its own, for a shard of several."""
    head: str = ""
    """`host:port` at which the replica's head takes in this shard; empty for the head and for a replica on one node."""
    shared: Path | None = None
    """Directory that has the same path on every node of the replica, with the weights under `model`."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A process to start. `argv`, `env` and the journal hold no secret: the key is put in where it is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """What the engine needs besides the common environment of `environment.py`."""
    key_variable: str = ""
    """Variable in which the engine takes its key; empty for one that reads the key's file."""
    token_variable: str = ""
    """Variable in which a shard takes what all shards of its replica know one another by; empty for none."""
    key_text: str = ""
    """What is in the file `key_config_of(launch)`, 0600, with `{key}` where a key goes; empty makes no such file."""
    host: str = ""
    """Address it listens on, where that is not the launch's."""
    directories: tuple[Path, ...] = ()
    """Made before the start, 0700."""
    patience_s: float = 0.0
    """What it may take besides until it is ready, where it prepares something first."""


def key_config_of(launch: Launch) -> Path:
    """Where an engine that takes its key, or anything no flag says, from a configuration of its own finds it."""
    return launch.key_file.with_name("engine.yaml")


class Engine(Protocol):
    """One kind of engine on this node.

    Life cycle:

    1. `detect()` at the agent's start, and again when the inventory is rebuilt. Blocking, in a worker thread.
    2. For each shard, `check_args()` as soon as it is ordered; raises InvalidInput with what is refused and why.
    3. `command()` before every start, first or repeated, with the port of that start; raises InvalidInput when the
       weights are not what the engine can load.
    4. While it runs, `GET health_path` says whether it lives, and `/v1/models` has to list all of `served_names()`
       before it is called Ready; an engine without names has no such list, and is not asked for one.
    5. Once it is, it is asked every second how busy it is, at `load_metrics`; an engine that does not say serves on,
       and one that has no such page is never asked: what it works on is unknown, which is not zero.
    6. When it is Ready, the log of that start is read for where it says that it computes (`says_compute`).
    """

    name: str
    """As profiles name it."""
    needs_weights: bool
    """Whether the shard's source is fetched before the start."""
    health_path: str

    @property
    def load_metrics(self) -> LoadMetrics | None:
        """Where it says how busy it is; none for an engine that has no such page."""

    @property
    def says_compute(self) -> ComputeWords | None:
        """How it says in its log where it computes; none for an engine that does not."""

    def detect(self) -> EngineBuild | None:
        """What is installed here, and what is missing when it cannot be used; none where nobody said it should be."""

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """The profile's flags in the spelling the engine knows; raises InvalidInput."""

    def command(self, launch: Launch) -> Command:
        """The process to start; raises InvalidInput."""

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """Names `/v1/models` has to list."""

    def help_argv(self) -> tuple[str, ...]:
        """What prints every flag it takes; raises InvalidInput when it is not installed."""

    def help_env(self) -> Mapping[str, str]:
        """What that needs in its environment."""
