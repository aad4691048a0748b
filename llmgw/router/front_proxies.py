"""The proxies the client port believes: as `run/client-proxies.json` has them, followed while the router runs.

A file that cannot be read leaves in force what was read before; until one was, nobody is believed.
"""

import logging
from pathlib import Path

import msgspec
import trio

from llmgw.core.errors import InvalidInput
from llmgw.core.proxies import TrustedProxies, parse_networks

LOOK_S = 2.0
"""How often the file is looked at."""

log = logging.getLogger(__name__)


class ClientProxies(msgspec.Struct, frozen=True, kw_only=True):
    """`run/client-proxies.json`: addresses and networks of the proxies in front of the client port."""

    trusted: tuple[str, ...] = ()


class FrontProxies:
    """Who is believed, for the next request."""

    def __init__(self, path: Path | None) -> None:
        """Follow the file at `path`; none believes nobody for good."""
        self._path = path
        self._raw = b""
        self.trusted = TrustedProxies()
        self.look()

    def look(self) -> None:
        """Take over what changed."""
        if self._path is None:
            return
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            raw = b""
        except OSError as error:
            log.error("%s cannot be read, what it said before stays: %s", self._path, error.strerror)
            return
        if raw == self._raw:
            return
        self._raw = raw
        try:
            told = msgspec.json.decode(raw, type=ClientProxies) if raw else ClientProxies()
            self.trusted = TrustedProxies(parse_networks(told.trusted, source=str(self._path)))
        except (msgspec.DecodeError, InvalidInput, UnicodeDecodeError) as error:
            log.error("%s cannot be used, what it said before stays: %s", self._path, error)
        else:
            log.info("proxies believed by the client port: %s", ", ".join(told.trusted) or "none")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: follow the file."""
        task_status.started()
        while self._path is not None:
            await trio.sleep(LOOK_S)
            self.look()
