"""Machines that enrolled. An evicted node keeps its row, so its certificate is refused until it joins again."""

from datetime import datetime

import msgspec

from llmgw.core.errors import NotAllowed, NotFound
from llmgw.store import audit
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, fetch_all, fetch_one, load

TOPIC = "nodes"

_SQL = load("nodes")


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as enrolled; what it does is in the leader's memory, not here."""

    name: str
    fingerprint: str
    """SHA-256 of its certificate, hex."""
    serial: str
    """Serial number of its certificate."""
    joined: datetime
    renewed: datetime
    """When it last got a certificate."""
    cordoned: bool
    evicted: datetime | None
    builds: dict[str, str] = {}
    """Versions of engines the node is asked to install, by engine; what is not here is its own agent.yaml's."""


def list_nodes(conn: Conn) -> tuple[NodeRow, ...]:
    """Every node by name, evicted ones too."""
    return fetch_all(conn, _SQL["list_nodes"], NodeRow)


def get_node(conn: Conn, name: str) -> NodeRow | None:
    """The node of that name, evicted or not."""
    return fetch_one(conn, _SQL["get_node"], NodeRow, {"name": name})


def upsert_node(conn: Conn, *, name: str, fingerprint: str, serial: str, actor: str) -> NodeRow:
    """A node has a (new) certificate: it joins, or joins again. Cordons are kept."""
    before = _locked(conn, name)
    params = {"name": name, "fingerprint": fingerprint, "serial": serial}
    after = _found(fetch_one(conn, _SQL["upsert_node"], NodeRow, params), name)
    action = "node.renew" if before and before.evicted is None else "node.join"
    _record(conn, actor, action, before, after)
    return after


def renew_node(conn: Conn, *, name: str, fingerprint: str, serial: str, actor: str) -> NodeRow:
    """The node's certificate, of that serial number, has a new life.

    Raises NotAllowed where it joined anew or was removed meanwhile: a renewal that was under way undoes neither.
    """
    before = _locked(conn, name)
    if before is None or before.evicted is not None or before.serial != serial:
        raise NotAllowed(f"node {name} is not admitted with this certificate any more: join it with a new join token")
    return upsert_node(conn, name=name, fingerprint=fingerprint, serial=serial, actor=actor)


def set_cordoned(conn: Conn, name: str, cordoned: bool, *, actor: str) -> NodeRow:
    """Place nothing new on the node, or do so again; raises NotFound."""
    before = _living(_locked(conn, name), name)
    if before.cordoned == cordoned:
        return before
    after = _found(fetch_one(conn, _SQL["set_cordoned"], NodeRow, {"name": name, "cordoned": cordoned}), name)
    _record(conn, actor, "node.cordon" if cordoned else "node.uncordon", before, after)
    return after


def set_build(conn: Conn, name: str, engine: str, version: str | None, *, actor: str) -> NodeRow:
    """Ask the node for a version of an engine; none asks for nothing any more. Raises NotFound."""
    before = _living(_locked(conn, name), name)
    if before.builds.get(engine) == version:
        return before
    params = {"name": name, "engine": engine, "version": version}
    after = _found(fetch_one(conn, _SQL["set_build"], NodeRow, params), name)
    _record(conn, actor, "node.build", before, after)
    return after


def remove_node(conn: Conn, name: str, *, actor: str) -> NodeRow:
    """Evict the node: its certificate is refused from here on. Raises NotFound."""
    before = _living(_locked(conn, name), name)
    after = _found(fetch_one(conn, _SQL["evict_node"], NodeRow, {"name": name}), name)
    _record(conn, actor, "node.remove", before, after)
    return after


def _locked(conn: Conn, name: str) -> NodeRow | None:
    return fetch_one(conn, _SQL["lock_node"], NodeRow, {"name": name})


def _living(row: NodeRow | None, name: str) -> NodeRow:
    row = _found(row, name)
    if row.evicted is not None:
        raise NotFound(f"node {name!r} was removed on {row.evicted:%Y-%m-%d}: it can join again with a new token")
    return row


def _found(row: NodeRow | None, name: str) -> NodeRow:
    if row is None:
        raise NotFound(f"there is no node {name!r}")
    return row


def _record(conn: Conn, actor: str, action: str, before: NodeRow | None, after: NodeRow) -> None:
    audit.record(conn, actor=actor, action=action, target=after.name, before=before, after=after)
    notify(conn, TOPIC, after.name)
