"""The mirror in this server: which sources it fetches as the configuration has it, and whom it serves."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from llmgw.control.pki import Authority
from llmgw.core.config import ServerConfig
from llmgw.core.identity import Role
from llmgw.core.layout import ServerLayout
from llmgw.core.secrets import mirror_token
from llmgw.mirror.app import serve
from llmgw.mirror.fetched import FetchedSet
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig


def make_mirror(
    config: ServerConfig,
    layout: ServerLayout,
    on_change: Callable[[str], None],
    on_fetched: Callable[[FetchedSet], None],
) -> Mirror:
    """The mirror; `on_change` is called with a source whose weights moved, `on_fetched` when a try at them is over."""
    return Mirror(
        layout.mirror,
        config=MirrorConfig(
            hf_endpoint=config.hf_endpoint,
            hf_token_file=Path(config.hf_token_file) if config.hf_token_file else None,
            allow_pickle=config.allow_pickle,
            wheelhouse=Path(config.wheelhouse) if config.wheelhouse else None,
        ),
        on_change=on_change,
        on_fetched=on_fetched,
    )


def mirror_service(
    mirror: Mirror, config: ServerConfig, authority: Authority, secret: bytes, node_allowed: Callable[[str, str], bool]
) -> Callable[..., Awaitable[object]]:
    """The service that answers nodes that are allowed, told by name and certificate number, and other servers."""
    address = config.address("mirror")
    return partial(
        serve,
        mirror,
        host=address.host,
        port=address.port,
        ssl_context=authority.mirror_server_context(),
        token=mirror_token(secret),
        allow_peer=lambda peer: peer.role is Role.SERVER or node_allowed(peer.name, peer.serial),
    )
