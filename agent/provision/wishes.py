"""Which versions a node is to have: what the cluster asks of it by name, over what its own agent.yaml says.

The cluster's word counts for more because it was given later, for this node, by somebody who could see it; an engine it
says nothing of is agent.yaml's. It is kept on the node's disk, so that an agent that starts while no control plane can
be reached does not fall back to another version.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmgw.core.engine_builds import NONE, check_build, version_meant
from llmgw.core.errors import InvalidInput
from llmgw.transfer.part import write_atomic

log = logging.getLogger("agent.provision")

MAX_FILE_BYTES = 64 * 1024


def merged(own: Mapping[str, str], cluster: Mapping[str, str]) -> dict[str, str]:
    """Versions by engine; those that are not to be installed are left out."""
    together = {**own, **cluster}
    return {
        engine: version_meant(engine, version) for engine, version in together.items() if version and version != NONE
    }


def load_builds(path: Path) -> dict[str, str]:
    """What the cluster asked for last; nothing where it never did, or where the file cannot be read."""
    try:
        with path.open("rb") as file:
            return sound(msgspec.json.decode(file.read(MAX_FILE_BYTES), type=dict[str, str]))
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read, and agent.yaml alone says what is installed: %s", path, error)
        return {}


def save_builds(path: Path, builds: Mapping[str, str]) -> None:
    """Keep it; raises OSError."""
    write_atomic(path, msgspec.json.encode(dict(builds)))


def sound(builds: Mapping[str, str]) -> dict[str, str]:
    """Of what was asked for, what this version can do; the rest is logged and left."""
    good = {}
    for engine, version in builds.items():
        try:
            check_build(engine, version)
        except InvalidInput as error:
            log.warning("An engine that the cluster asks for is left alone: %s", error.message)
        else:
            good[engine] = version
    return good
