"""Who is believed about whom: only listed peers, and of what they pass on only what a listed one saw itself."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.errors import InvalidInput
from llmgw.core.proxies import MAX_HOPS, MAX_KNOWN, TrustedProxies, parse_networks
from llmgw.router.ports import Refusal
from llmgw.router.shares import Shares

TRUSTED = ("10.0.0.7", "10.1.0.0/16", "fd00::/64", "::ffff:172.16.0.0/108")


def proxies(*texts: str) -> TrustedProxies:
    return TrustedProxies(parse_networks(texts or TRUSTED, source="test"))


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.0.0.7", True),
        ("10.0.0.8", False),
        ("::ffff:10.0.0.7", True),
        ("::ffff:10.0.0.8", False),
        ("10.1.255.1", True),
        ("10.2.0.1", False),
        ("fd00::1", True),
        ("fd00:0:0:1::1", False),
        ("fd00::1%eth0", True),
        ("172.16.3.4", True),
        ("172.32.0.1", False),
        ("::ffff:172.16.3.4", True),
        ("::10.0.0.7", False),
        ("", False),
        ("unix", False),
    ],
)
def test_who_is_a_proxy(peer: str, trusted: bool) -> None:
    known = proxies()
    assert [known.trusts(peer) for _ in range(2)] == [trusted, trusted]
    assert not TrustedProxies().trusts(peer)


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([], "10.0.0.7"),
        ([b"203.0.113.9"], "203.0.113.9"),
        ([b"6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        ([b"127.0.0.1,203.0.113.9 , 10.1.2.3"], "203.0.113.9"),
        ([b"6.6.6.6", b"203.0.113.9", b"10.1.2.3"], "203.0.113.9"),
        ([b"10.1.2.3, 10.1.2.4"], "10.1.2.3"),
        ([b"203.0.113.9:51234"], "203.0.113.9"),
        ([b"[2001:db8::5]:443"], "2001:db8::5"),
        ([b"[2001:db8::5]"], "2001:db8::5"),
        ([b"2001:DB8:0::5"], "2001:db8::5"),
        ([b"::ffff:203.0.113.9"], "203.0.113.9"),
        ([b"fe80::1%eth0"], "fe80::1"),
        ([b"203.0.113.9, unknown"], "10.0.0.7"),
        ([b"203.0.113.9, unknown, 10.1.2.3"], "10.1.2.3"),
        ([b""], "10.0.0.7"),
        ([b"203.0.113.9,"], "10.0.0.7"),
        ([b"203.0.113.9:x"], "10.0.0.7"),
        ([b"0177.0.0.1"], "10.0.0.7"),
        ([b"1.2.3"], "10.0.0.7"),
        ([b"[2001:db8::5"], "10.0.0.7"),
        ([b"\xff\xfe"], "10.0.0.7"),
        ([b"6.6.6.6," * 5000 + b"10.1.2.3"], "6.6.6.6"),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_no_proxy(forwarded: list[bytes], client: str) -> None:
    assert proxies().client("10.0.0.7", forwarded) == client


def test_nobody_else_names_anybody() -> None:
    assert proxies().client("203.0.113.9", [b"10.0.0.7", b"6.6.6.6"]) == "203.0.113.9"
    assert TrustedProxies().client("127.0.0.1", [b"6.6.6.6"]) == "127.0.0.1"


def test_a_chain_without_end_is_followed_so_far() -> None:
    assert proxies().client("10.0.0.7", [b"6.6.6.6" + b", 10.1.2.3" * MAX_HOPS]) == "10.1.2.3"
    assert proxies().client("10.0.0.7", [b"6.6.6.6" + b", 10.1.2.3" * (MAX_HOPS - 1)]) == "6.6.6.6"


ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


@settings(max_examples=200, deadline=None)
@given(st.lists(ADDRESSES, max_size=4), st.binary(max_size=40).filter(lambda raw: b"," not in raw), ADDRESSES)
def test_nothing_a_client_writes_changes_who_it_is(claimed: list[str], noise: bytes, client: str) -> None:
    """Whatever stands to the left of what our proxy appended has no say."""
    written = [", ".join(claimed).encode(), noise]
    found = proxies("10.0.0.7").client("10.0.0.7", [*written, client.encode()])
    address = ipaddress.ip_address(client)
    mapped = getattr(address, "ipv4_mapped", None) or address
    if str(mapped) != "10.0.0.7":
        assert found == str(mapped)


def test_memory_of_peers_is_bounded() -> None:
    known = proxies()
    for number in range(MAX_KNOWN + 10):
        assert not known.trusts(f"192.0.{number >> 8 & 255}.{number & 255}")
    assert len(known._known) <= MAX_KNOWN
    assert known.trusts("10.0.0.7")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gateway.lan", "neither an address nor a network"),
        ("", "neither an address nor a network"),
        ("10.0.0.0/33", "neither an address nor a network"),
        ("10.0.0", "neither an address nor a network"),
        ("10.0.0.7:443", "neither an address nor a network"),
        ("10.0.0.7/8", "write 10.0.0.0/8 for the network"),
        ("fd00::1/64", "write fd00::/64 for the network"),
        ("0.0.0.0/0", "is everybody"),
        ("::/0", "is everybody"),
        ("::ffff:0:0/96", "every IPv4 address"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(text: str, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_networks(["10.0.0.7", text], source="server.yaml: client.trusted_proxies")
    assert part in caught.value.message
    assert caught.value.field == "server.yaml: client.trusted_proxies"


@pytest.mark.promise("A15")
def test_a_share_is_an_addresses_and_an_ipv6_networks() -> None:
    shares = Shares(2)
    held = [shares.take("203.0.113.9"), shares.take("203.0.113.9")]
    assert shares.take("203.0.113.9") is None
    assert shares.take("::ffff:203.0.113.9") is None
    assert shares.take("203.0.113.8") is not None
    six = [shares.take("2001:db8::1"), shares.take("2001:db8::ffff:2")]
    assert None not in six
    assert shares.take("2001:db8::3%eth0") is None
    assert shares.take("2001:db8:0:1::3") is not None
    for group in [*held, *six]:
        assert group is not None
        shares.give(group)
    assert shares.take("203.0.113.9") is not None
    refusal = shares.refusal()
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (429, "too_many_connections")


def test_nothing_is_kept_of_who_has_left() -> None:
    shares = Shares(2)
    for number in range(1000):
        group = shares.take(f"10.9.{number >> 8}.{number & 255}")
        assert group is not None
        shares.give(group)
    assert shares.addresses == 0
