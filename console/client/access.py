"""With which key the console asks a model. Keys live in memory; the only one read from a file is the demo's own."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget
from llmgw.api.types import KeyCreate

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient

DEMO_KEY = "demo.key"
"""Beside the demo's admin.sock."""
MAX_KEY_BYTES = 512
REVOKE_TIMEOUT_S = 5.0
"""Leaving the console waits no longer than this for a temporary key to be revoked."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """A way to ask the cluster's models."""

    url: str
    """The client API's address without a path."""
    key: str
    note: str
    """Where the key is from, in a word or two."""
    id: str = ""
    """Id of a temporary key, which is to be revoked."""


class Accesses:
    """What was typed, by cluster, until the console ends."""

    def __init__(self) -> None:
        self._known: dict[str, Access] = {}

    def remember(self, target: ServerTarget, access: Access) -> None:
        """Use `access` for this cluster from now on."""
        self._known[str(target)] = access

    def find(self, target: ServerTarget, url: str) -> Access | None:
        """What was typed, else the demo's key; none when neither is there. Reads a small file."""
        known = self._known.get(str(target))
        if known is not None:
            return known
        key = demo_key(target)
        return Access(url=url, key=key, note=DEMO_KEY) if key and url else None


def demo_key(target: ServerTarget) -> str:
    """The demo's key, where this is a demo whose key may be read; else empty."""
    if target.socket is None:
        return ""
    try:
        with target.socket.with_name(DEMO_KEY).open("rb") as file:
            words = file.read(MAX_KEY_BYTES).split()
    except OSError:
        return ""
    return words[0].decode() if len(words) == 1 and words[0].isascii() else ""


def make_temporary(api: "AdminClient", url: str, model: str) -> Access:
    """A key for this one model; raises ClientError. Revoke it with `revoke_soon`."""
    made = api.create_key(KeyCreate(name=f"console-try-{model}"[:60], models=(model,)))
    return Access(url=url, key=made.key, note="temporary key", id=made.id)


def revoke_soon(target: ServerTarget, access: Access, failed: Callable[[str], None]) -> threading.Thread:
    """Revoke a temporary key in a thread that outlasts the screen; `failed` is called there with a sentence."""
    # The standard library's HTTP client takes 20 ms to import: the first paint must not wait for it.
    from llmgw.api.client import AdminClient

    def revoke() -> None:
        try:
            AdminClient(target, timeout_s=REVOKE_TIMEOUT_S).revoke_key(access.id)
        except ClientError as error:
            failed(f"the temporary key {access.id} could not be revoked: {error.message}")

    thread = threading.Thread(target=revoke, name="revoke")
    thread.start()
    return thread


def typed(access: Access | None, url: str, key: str) -> Access:
    """What was typed in place of `access`."""
    base = access or Access(url=url, key=key, note="")
    return replace(base, url=url, key=key, note="typed key", id="")
