"""Who a certificate says its holder is. Role, node and cluster are read from the certificate, never from a message."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from llmgw.core.errors import InvalidInput

NODE_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
CLUSTER_ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Role(StrEnum):
    """What a certificate is for; stands in the subject's organisation."""

    NODE = "llmgw-node"
    SERVER = "llmgw-server"


@dataclass(frozen=True, kw_only=True)
class PeerIdentity:
    """The holder of a verified certificate."""

    role: Role
    name: str
    """Node name; for a control plane its first host name."""
    cluster_id: str
    serial: str
    """Serial number in lower-case hex without leading zeros."""


def check_node_name(name: str, *, field: str = "node") -> str:
    """`name` itself; raises InvalidInput with the rule it breaks."""
    if NODE_NAME_PATTERN.fullmatch(name) and ".." not in name:
        return name
    hint = f"; did you mean {name.lower()!r}?" if NODE_NAME_PATTERN.fullmatch(name.lower()) else ""
    raise InvalidInput(
        f"{name[:80]!r} is not a node name: 1 to 63 of a-z, 0-9 and ._- , starting with a letter or digit, "
        f"without two dots in a row{hint}",
        field=field,
    )


def node_uri(cluster_id: str, node: str) -> str:
    """Name of a node in its certificate."""
    return f"llmgw://{cluster_id}/node/{node}"


def server_uri(cluster_id: str) -> str:
    """Name of a control plane in its certificate."""
    return f"llmgw://{cluster_id}/server"


def serial_hex(serial: int) -> str:
    """The form in which serial numbers are stored and compared."""
    return format(serial, "x")


def peer_identity(certificate: Mapping[str, object] | None) -> PeerIdentity | None:
    """Who a peer is, from `ssl.SSLObject.getpeercert()` of a verified handshake; None without a certificate of ours.

    Subject and URI must agree: a certificate in which they differ was not made by this code and names nobody.
    """
    if not certificate:
        return None
    subject = _pairs(certificate.get("subject"))
    uris = [value for kind, value in _names(certificate.get("subjectAltName")) if kind == "URI"]
    if len(uris) != 1 or len(subject.get("organizationName", ())) != 1 or len(subject.get("commonName", ())) != 1:
        return None
    name = subject["commonName"][0]
    url = urlsplit(uris[0])
    try:
        role = Role(subject["organizationName"][0])
        serial = serial_hex(int(str(certificate.get("serialNumber", "")), 16))
    except ValueError:
        return None
    expected = node_uri(url.netloc, name) if role is Role.NODE else server_uri(url.netloc)
    if uris[0] != expected or not CLUSTER_ID_PATTERN.fullmatch(url.netloc):
        return None
    return PeerIdentity(role=role, name=name, cluster_id=url.netloc, serial=serial)


def _pairs(subject: object) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rdn in subject if isinstance(subject, tuple) else ():
        for key, value in _names(rdn):
            found.setdefault(key, []).append(value)
    return found


def _names(pairs: object) -> list[tuple[str, str]]:
    return [(str(pair[0]), str(pair[1])) for pair in pairs if len(pair) == 2] if isinstance(pairs, tuple) else []
