"""What tells other processes that something changed. A notification is a hint: it carries a name, never the change."""

import msgspec

from llmgw.store.sql import Conn, execute, load

CHANNEL = "llmgw"
RESYNC = "resync"
"""Topic a listener adds itself whenever notifications may have been missed: read everything again."""

_SQL = load("session")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something changed: `topic` is `catalog`, `keys`, `scopes`, `nodes`, `settings` or `resync`;
    `name` says what in it."""

    topic: str
    name: str = ""


def notify(conn: Conn, topic: str, name: str) -> None:
    """Tell listeners once this transaction commits."""
    payload = msgspec.json.encode(Change(topic=topic, name=name)).decode()
    execute(conn, _SQL["notify"], {"payload": payload})


def parse(payload: str) -> Change:
    """The change a payload tells of; anything unreadable asks for a resync."""
    try:
        return msgspec.json.decode(payload, type=Change)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Change(topic=RESYNC)
