"""Where nodes and clients reach this server."""

import socket
from collections.abc import Callable
from typing import Literal

from llmgw.core.addresses import EVERY_IPV4, EVERY_IPV6, Address, client_url
from llmgw.core.config import ServerConfig


def advertised(config: ServerConfig) -> str:
    """Host under which nodes reach this machine: the one the operator names, else the one that the agents' port is on,
    else the machine's own name."""
    agents = config.address("agents").host
    return config.advertise or (agents if agents not in (EVERY_IPV4, EVERY_IPV6) else socket.gethostname())


class OwnAddresses:
    """This server's addresses as others write them."""

    def __init__(self, config: ServerConfig, *, tls: Callable[[], bool], router_port: Callable[[], int]) -> None:
        """`tls` says whether clients speak TLS, `router_port` which port the routers got; 0 while there is none."""
        self._config = config
        self._tls = tls
        self._router_port = router_port

    def agents(self) -> str:
        """Where agents come to: HOST:PORT."""
        return self._here("agents")

    def mirror(self) -> str:
        """Where nodes fetch weights."""
        return f"https://{self._here('mirror')}"

    def _here(self, key: Literal["agents", "mirror"]) -> str:
        return str(Address(host=advertised(self._config), port=self._config.address(key).port))

    def clients(self) -> str:
        """Where clients reach the models, without a path; empty until routers serve on a port that they were given."""
        listen = self._config.address("listen")
        port = listen.port or self._router_port()
        return client_url(Address(host=listen.host, port=port), self._config.advertise, tls=self._tls()) if port else ""
