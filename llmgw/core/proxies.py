"""Which peers may say for whom they ask. Nobody may unless listed, and then only what stands to the right is believed.

Whatever a client wrote into `X-Forwarded-For` itself stands to the left of what the last proxy appended. So the list is
read from the right, over the proxies we know, to the first address that is none of them: that one a known proxy saw.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from llmgw.core.errors import InvalidInput

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOPS = 32
"""Addresses of one `X-Forwarded-For` that are looked at, from the right: no honest chain of proxies is as long."""
MAX_KNOWN = 4096
"""Peers remembered with whether they are proxies; all are forgotten when there are more."""
_MAPPED_BITS = 96
"""Bits of `::ffff:0:0/96` before the IPv4 address in it."""
_SHOWN_CHARS = 80


def parse_address(text: str) -> IpAddress | None:
    """The address in `text`; IPv4 in IPv6 is the IPv4 address, a zone (`%eth0`) is left out. None for what is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def parse_networks(texts: Iterable[str], *, source: str) -> tuple[Network, ...]:
    """Addresses and networks in CIDR form; raises InvalidInput whose field is `source`."""
    return tuple(_network(text, source) for text in texts)


def _network(text: str, source: str) -> Network:
    shown = repr(text[:_SHOWN_CHARS])
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(
            f"{shown} is neither an address nor a network; write 10.0.0.7, 10.0.0.0/24 or fd00::/64", field=source
        ) from None
    if "/" in text and ipaddress.ip_interface(text).ip != network.network_address:
        raise InvalidInput(
            f"{shown} has bits beyond its prefix; write {network} for the network, or the address alone", field=source
        )
    if network.prefixlen == 0:
        raise InvalidInput(f"{shown} is everybody: any client could then say it is another", field=source)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None:
        return network
    if network.prefixlen <= _MAPPED_BITS:
        raise InvalidInput(f"{shown} is every IPv4 address: any client could then say it is another", field=source)
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


class TrustedProxies:
    """The proxies in front of the client port. Never changed once made."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        """Trust the peers in `networks`; none is nobody."""
        self._networks = tuple(networks)
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, peer: str) -> bool:
        """Whether the peer at the address `peer`, as the kernel writes it, may name others."""
        if not self._networks:
            return False
        known = self._known.get(peer)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[peer] = self._contains(parse_address(peer))
        return known

    def client(self, peer: str, forwarded: Sequence[bytes]) -> str:
        """Whom `peer` asks for, given the values of its `X-Forwarded-For` headers in their order.

        `peer` itself when it is not trusted, or named nobody. What cannot be read ends the search at the proxy that
        passed it on.
        """
        if not forwarded or not self.trusts(peer):
            return peer
        found = peer
        for hop in reversed(b",".join(forwarded).rsplit(b",", MAX_HOPS)[-MAX_HOPS:]):
            address = _hop(hop)
            if address is None:
                break
            found = str(address)
            if not self._contains(address):
                break
        return found

    def _contains(self, address: IpAddress | None) -> bool:
        return address is not None and any(
            address.version == network.version and address in network for network in self._networks
        )


def _hop(raw: bytes) -> IpAddress | None:
    """One entry: an address, in brackets or not, with a port or not."""
    text = raw.strip(b" \t").decode("ascii", "replace")
    if text.startswith("["):
        inner, bracket, rest = text[1:].partition("]")
        return parse_address(inner) if bracket and (not rest or _is_port(rest)) else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return parse_address(host) if _is_port(f":{port}") else None
    return parse_address(text)


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()
