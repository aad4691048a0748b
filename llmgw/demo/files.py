"""The demo's directory: two ordinary configuration files, the ports chosen for it, and its key. All of it is readable
and editable by the operator, and a second start finds it again."""

import json
import os
import socket
from pathlib import Path

import msgspec
import yaml

from llmgw.core.errors import InvalidInput
from llmgw.core.layout import AgentLayout, ServerLayout, check_own

HOST = "127.0.0.1"
NODE_NAME_FALLBACK = "local"


class DemoPorts(msgspec.Struct, frozen=True, kw_only=True):
    """Loopback ports of the parts nobody types, kept in `run/ports.json`."""

    agents: int
    mirror: int


class DemoFiles:
    """Names under the demo's directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.server = ServerLayout(data=data)
        self.agent = AgentLayout(data=data / "node")
        self.server_config = data / "server.yaml"
        self.agent_config = data / "agent.yaml"
        self.key = data / "demo.key"
        self.fleet = data / "fleet"
        self.lock = data / "demo.lock"
        self.ports = data / "run" / "ports.json"
        self.children_log = data / "log"

    def prepare(self) -> None:
        """Make the directories, private to their owner; parents are made too and never changed.

        Raises InvalidInput for a directory that is everybody's, OSError for one that cannot be made.
        """
        check_own(self.data)
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.data, self.server.run, self.server.log, self.agent.data):
            directory.mkdir(exist_ok=True, mode=0o700)

    def write_configs(self, *, port: int, admin_port: int, ports: DemoPorts, node: str) -> None:
        """Write both configuration files; what an operator added to them is kept."""
        self._merge(
            self.server_config,
            {
                "data": str(self.data),
                "listen": f"{HOST}:{port}",
                "admin": f"{HOST}:{admin_port}",
                "agents": f"{HOST}:{ports.agents}",
                "mirror": f"{HOST}:{ports.mirror}",
                "advertise": HOST,
            },
        )
        self._merge(
            self.agent_config,
            {"data": str(self.agent.data), "name": node, "address": HOST, "stop_engines_on_exit": True},
        )

    def read_key(self) -> str | None:
        """The demo's API key, if it was made."""
        try:
            return self.key.read_text().strip() or None
        except FileNotFoundError:
            return None

    def write_key(self, key: str) -> None:
        """Keep the demo's API key, 0600."""
        replace_file(self.key, key + "\n", mode=0o600)

    def choose_ports(self) -> DemoPorts:
        """The ports of last time while they are free, else new ones."""
        try:
            kept = msgspec.json.decode(self.ports.read_bytes(), type=DemoPorts)
        except (FileNotFoundError, msgspec.MsgspecError):
            kept = None
        if kept is not None and all(port_is_free(p) for p in (kept.agents, kept.mirror)):
            return kept
        agents, mirror = free_ports(2)
        chosen = DemoPorts(agents=agents, mirror=mirror)
        replace_file(self.ports, json.dumps(msgspec.to_builtins(chosen)) + "\n")
        return chosen

    def _merge(self, path: Path, ours: dict[str, object]) -> None:
        kept = _read_yaml(path)
        merged = {**kept, **ours}
        if merged != kept:
            replace_file(path, yaml.safe_dump(merged, sort_keys=False, allow_unicode=True))


def _read_yaml(path: Path) -> dict[str, object]:
    """What the operator has there, nothing where there is no file; raises InvalidInput: no word is written over."""
    try:
        kept = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", field=str(path)) from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidInput(
            f"is not YAML ({error.problem}); mend it, or remove it for a new one", field=f"{path}{line}"
        ) from error
    except yaml.YAMLError as error:
        raise InvalidInput("is not YAML; mend it, or remove it for a new one", field=str(path)) from error
    if kept is None:
        return {}
    if not isinstance(kept, dict):
        raise InvalidInput("holds no keys; mend it, or remove it for a new one", field=str(path))
    return kept


def replace_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    part.replace(path)


def port_is_free(port: int) -> bool:
    """Whether a listener could be bound on the demo's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((HOST, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def node_name() -> str:
    """This machine's name as a node's name."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname().lower())
    return name.strip("._-")[:63] or NODE_NAME_FALLBACK
