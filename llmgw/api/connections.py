"""HTTP connections that are made soon or not at all, and then may be silent for as long as their answers take."""

import http.client
import socket
from pathlib import Path

from llmgw.core.sockets import connect_unix

CONNECT_TIMEOUT_S = 5.0
"""Longest wait for a connection: a server that is there accepts at once."""


class UnixConnection(http.client.HTTPConnection):
    """To a server's socket in the file system."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("llmgw", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = connect_unix(self._path, timeout_s=CONNECT_TIMEOUT_S)
        self.sock.settimeout(self._timeout_s)


class TcpConnection(http.client.HTTPConnection):
    """To a server's address."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect under the short connect timeout."""
        self.sock = socket.create_connection((self.host, self.port), timeout=CONNECT_TIMEOUT_S)
        self.sock.settimeout(self._timeout_s)
