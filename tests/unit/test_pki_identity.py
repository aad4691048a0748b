"""Names in certificates, and join tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.errors import InvalidInput
from llmgw.core.identity import Role, check_node_name, node_uri, peer_identity, server_uri
from llmgw.core.join_token import new_token, parse_token


def certificate(*, role: str = "llmgw-node", name: str = "n1", uri: str = "llmgw://c1/node/n1") -> dict[str, object]:
    """What `getpeercert` gives."""
    return {
        "subject": ((("organizationName", role),), (("commonName", name),)),
        "subjectAltName": (("URI", uri),),
        "serialNumber": "0AB3",
    }


def test_a_node() -> None:
    identity = peer_identity(certificate())
    assert identity is not None
    assert (identity.role, identity.name, identity.cluster_id, identity.serial) == (Role.NODE, "n1", "c1", "ab3")


def test_a_server() -> None:
    identity = peer_identity(certificate(role="llmgw-server", name="host", uri=server_uri("c1")))
    assert identity is not None
    assert identity.role is Role.SERVER


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        certificate(role="admin"),
        certificate(name="n2"),
        certificate(uri="llmgw://c1/server"),
        certificate(uri="https://c1/node/n1"),
        certificate(uri="llmgw://c1/node/n1?x"),
        certificate(uri="llmgw:///node/n1"),
        {**certificate(), "serialNumber": "xyz"},
        {**certificate(), "subjectAltName": ()},
        {**certificate(), "subjectAltName": (("URI", node_uri("c1", "n1")), ("URI", node_uri("c1", "n2")))},
        {
            **certificate(),
            "subject": ((("commonName", "n1"), ("organizationName", "llmgw-node")), (("commonName", "x"),)),
        },
        {**certificate(), "subject": "llmgw-node"},
    ],
)
def test_certificates_that_name_nobody(bad: dict[str, object] | None) -> None:
    assert peer_identity(bad) is None


@pytest.mark.parametrize("name", ["a", "gpu-1", "gpu_1.rack-2", "0", "a" * 63])
def test_node_names(name: str) -> None:
    assert check_node_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a..b", "../x", "a/b", "a b", "a\n", "ä", "a" * 64, "x\x1b[1m"])
def test_refused_node_names(name: str) -> None:
    with pytest.raises(InvalidInput, match="not a node name: 1 to 63"):
        check_node_name(name)


def test_an_upper_case_name_gets_a_hint() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'gpu-1'"):
        check_node_name("GPU-1")


def test_tokens_round_trip_and_hide_their_secret() -> None:
    token = new_token("ab" * 32)
    assert parse_token(f"  {token}\n") == token
    assert token.secret.hex() not in repr(token)
    assert str(token).split(".")[1] not in repr(token)
    assert len(token.digest) == 64
    assert new_token("ab" * 32).secret != token.secret


@given(st.text(max_size=300))
def test_anything_else_is_no_token(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a join token"):
        parse_token(text)


def test_a_damaged_token() -> None:
    text = str(new_token("ab" * 32))
    for damaged in (text[:-1], text + "0", text.upper(), text.replace("llmgw-join", "llmgw"), text.replace(".", "", 1)):
        with pytest.raises(InvalidInput):
            parse_token(damaged)
