"""An engine's environment is built from nothing: no variable of the agent's own reaches it, so no secret can.

Engines that take their key in a variable get it there, and nothing else that is secret.

It bears the marks by which its process is known for ours after the agent's death: `LLMGW_MARK` names cluster and
shard, `LLMGW_NODE` the node (several agents of one cluster may share a machine in tests and demos).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import agent
from agent.discovery.nameless import index_of

MARK_VARIABLE = "LLMGW_MARK"
NODE_VARIABLE = "LLMGW_NODE"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def mark(cluster_id: str, shard_id: str) -> str:
    """The value of `LLMGW_MARK` for a shard."""
    return f"{cluster_id}/{shard_id}"


def build_environment(
    *,
    cluster_id: str,
    node: str,
    shard_id: str,
    home: Path,
    card_uuids: Sequence[str],
    operator: Mapping[str, str],
    engine: Mapping[str, str],
    profile: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of one engine; later sources win, but nothing overrides marks and cards.

    `operator` comes from agent.yaml, `engine` from the engine's adapter, `profile` is checked by `engine_rules`.
    """
    return {
        # The marks come first: /proc/PID/environ is read from its beginning.
        **(fixed := {MARK_VARIABLE: mark(cluster_id, shard_id), NODE_VARIABLE: node}),
        # Engines that set their process title keep their hands off the environment's memory, where the marks are read.
        "SPT_NOENV": "1",
        "PATH": _PATH,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **operator,
        **engine,
        **profile,
        # No card at all for a CPU profile, so that nothing takes memory on a card it was not given.
        "CUDA_VISIBLE_DEVICES": ",".join(index_of(uuid) or uuid for uuid in card_uuids),
        **fixed,
    }


def python_path() -> str:
    """Directory from which `python -P -m` finds the packages this agent runs from."""
    return str(Path(agent.__file__).resolve().parent.parent)
