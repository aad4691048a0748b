"""Where everything lives under a data directory. One place knows the names; all processes agree by importing it."""

import stat
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import InvalidInput


def check_own(data: Path) -> None:
    """Raise InvalidInput for a data directory that is everybody's, such as `/tmp`: it is about to be made private."""
    try:
        mode = data.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"{data} cannot be looked at: {error.strerror}", field="data") from error
    if not stat.S_ISDIR(mode):
        raise InvalidInput(f"{data} is no directory", field="data")
    if mode & stat.S_IWOTH:
        raise InvalidInput(
            f"{data} is everybody's (mode {stat.S_IMODE(mode):04o}) and would be made private: "
            f"name a directory of its own, as in {data / 'llmgw'}",
            field="data",
        )


@dataclass(frozen=True, kw_only=True)
class ServerLayout:
    """Files of a control plane under `data` (mode 0700)."""

    data: Path

    @property
    def lock(self) -> Path:
        """flock'd by the server for its life; holds its pid."""
        return self.data / "lock"

    @property
    def server_id(self) -> Path:
        """Identity that owns the lease; made once."""
        return self.data / "server.id"

    @property
    def admin_socket(self) -> Path:
        """Unix socket of the admin app."""
        return self.data / "admin.sock"

    @property
    def admin_token(self) -> Path:
        """0600; bearer token with the admin role for loopback TCP."""
        return self.data / "admin.token"

    @property
    def database(self) -> Path:
        """Embedded PostgreSQL's data directory."""
        return self.data / "db"

    @property
    def log(self) -> Path:
        """JSON lines, rotated: `server.log`, `router-0.log`, `postgres.log`."""
        return self.data / "log"

    @property
    def run(self) -> Path:
        """0700; sockets and small state that may be deleted while nothing runs."""
        return self.data / "run"

    @property
    def secrets(self) -> Path:
        """0700; cluster secret, CA and certificates."""
        return self.data / "secrets"

    @property
    def cluster_secret(self) -> Path:
        """0600; 32 random bytes."""
        return self.secrets / "cluster.secret"

    @property
    def mirror(self) -> Path:
        """Weights the mirror keeps."""
        return self.data / "mirror"

    @property
    def feed_socket(self) -> Path:
        """Routers follow the control plane here."""
        return self.run / "feed.sock"

    @property
    def public_socket(self) -> Path:
        """Routers relay what is not inference here."""
        return self.run / "public.sock"

    @property
    def client_tls(self) -> Path:
        """`{certificate, key}`, paths of the client port's TLS; absent is plain HTTP. Routers follow it."""
        return self.run / "client-tls.json"

    @property
    def client_proxies(self) -> Path:
        """`{trusted}`, the proxies in front of the client port; absent is none. Routers follow it."""
        return self.run / "client-proxies.json"

    @property
    def spool(self) -> Path:
        """Usage rows waiting for the control plane, a file a router."""
        return self.data / "spool"

    def router_state(self, index: int) -> Path:
        """`{pid, start_time, boot_id, port, version}` of router `index`."""
        return self.run / f"router-{index}.json"

    def router_socket(self, index: int) -> Path:
        """Unix socket on which router `index` hands out its listening descriptor (SCM_RIGHTS)."""
        return self.run / f"router-{index}.sock"

    @property
    def routing_cache(self) -> Path:
        """0600; last routing and the key records learned (by digest), for a router started while the store is away."""
        return self.run / "routing.cache"

    @property
    def requests(self) -> Path:
        """0700; the request log, JSON lines, rotated: `0.jsonl`, `0.jsonl.1`, … for each router of this machine."""
        return self.run / "requests"

    @property
    def counters(self) -> Path:
        """0600; counts for limits and budgets, shared by this machine's routers through memory."""
        return self.run / "counters"


@dataclass(frozen=True, kw_only=True)
class AgentLayout:
    """Files of an agent under `data` (mode 0700)."""

    data: Path

    @property
    def lock(self) -> Path:
        """flock'd by the agent for its life; holds its pid."""
        return self.data / "lock"

    @property
    def identity(self) -> Path:
        """`{node, cluster_id, servers, mirror_url}` learned at enrolment."""
        return self.data / "node.json"

    @property
    def certificate(self) -> Path:
        """PEM of the node's certificate."""
        return self.data / "node.crt"

    @property
    def key(self) -> Path:
        """0600; PEM of the node's private key."""
        return self.data / "node.key"

    @property
    def ca(self) -> Path:
        """PEM of the cluster's CA."""
        return self.data / "ca.crt"

    @property
    def journal(self) -> Path:
        """A JSON file a shard, for re-adoption."""
        return self.data / "journal"

    @property
    def shards(self) -> Path:
        """A directory a shard: `output.log`, `engine.key` (0600)."""
        return self.data / "shards"

    @property
    def weights(self) -> Path:
        """Node cache of weights."""
        return self.data / "weights"

    @property
    def log(self) -> Path:
        """The agent's own JSON lines."""
        return self.data / "log"
