"""Addresses: every form is taken as documented or refused naming source, value and the form wanted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.addresses import Address, check_advertised, check_apart, client_url, parse_listen
from llmgw.core.errors import InvalidInput


@pytest.mark.case("C29")
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8000", "127.0.0.1", 8000),
        (":8000", "0.0.0.0", 8000),
        ("[::1]:8000", "::1", 8000),
        ("localhost:8000", "localhost", 8000),
        ("10.0.0.7:0", "10.0.0.7", 0),
        ("gpu-0.lan:65535", "gpu-0.lan", 65535),
    ],
)
def test_documented_forms_are_taken(text: str, host: str, port: int) -> None:
    assert parse_listen(text, source="--listen") == Address(host=host, port=port)


@pytest.mark.case("C29")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "http://x:1",
        "0.0.0.0:99999",
        "::1:8000",
        "[::1]",
        "[x]:1",
        "a b:1",
        "x:",
        "x:-1",
        "x:1e3",
        ":٣",
        "256.1.1.1:1",
        "-x:1",
        "x..y:1",
        "\n:1",
        "[::1]:",
    ],
)
def test_anything_else_is_refused_with_source_value_and_form(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_listen(text, source="LLMGW_LISTEN")
    message = caught.value.message
    assert message.startswith("LLMGW_LISTEN: ")
    assert repr(text) in message
    assert "HOST:PORT" in message


@settings(max_examples=200)
@given(st.text(max_size=40))
def test_what_is_taken_is_written_back_the_same(text: str) -> None:
    try:
        address = parse_listen(text, source="x")
    except InvalidInput:
        return
    assert 0 <= address.port <= 65535
    assert parse_listen(str(address), source="x") == address


@pytest.mark.case("C29")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("80a", "it has no port"),
        ("localhost:80a", "'80a' is not a port"),
        ("[::1]", "it has no port"),
        ("[fd00::7%eth0]", "it has no port"),
        ("[::1]8000", "between ] and the port stands a colon"),
        ("::1", "an IPv6 address stands in brackets"),
        ("fe80::1:8000", "an IPv6 address stands in brackets"),
        ("[[::1]]:80", "is not an IPv6 address"),
        ("127.0.0.1:65536", "port 65536 is above 65535"),
        (" 8000", "it holds a blank"),
        ("8000\n", "it holds a blank or a control character"),
        ("127.0.0.1: 80", "it holds a blank"),
        ("unix:/run/llmgw.sock", "it is a path"),
        ("/run/llmgw.sock", "it is a path"),
        ("my_host:80", "'my_host' is not a host"),
        ("8000,8001", "it has no port"),
        ("８０００", "it has no port"),
    ],
)
def test_a_refusal_says_which_part_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_listen(text, source="--listen")
    assert why in caught.value.message


@pytest.mark.parametrize("name", ["gateway.lan", "gateway", "10.0.0.7", "fd00::7", "GATEWAY"])
def test_a_machine_is_advertised_by_its_name_or_address_alone(name: str) -> None:
    check_advertised(name, source="advertise")


@pytest.mark.parametrize(
    "name",
    [
        "gateway.lan:9443",
        "https://gateway.lan",
        "[fd00::7]",
        "10.0.0.256",
        "a b",
        "gateway/",
        "",
        "a..b",
        "ü.lan",
        "::",
        "0.0.0.0",
    ],
)
def test_anything_more_or_less_is_refused_before_a_node_is_told(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^advertise: .*write it alone, without scheme, port or brackets"):
        check_advertised(name, source="advertise")


def test_two_listeners_cannot_have_one_port() -> None:
    def told(**texts: str) -> str:
        try:
            check_apart({key: parse_listen(text, source=key) for key, text in texts.items()}, source="f")
        except InvalidInput as error:
            return error.message
        return ""

    assert told(listen=":80", admin="127.0.0.1:80") == "f: listen and admin are both on port 80: give each its own"
    assert told(listen="80", admin="127.0.0.1:80") != ""
    assert told(listen="[::]:80", admin="127.0.0.1:80") != ""
    assert told(listen="10.0.0.1:80", admin="127.0.0.1:80") == ""
    assert told(listen="127.0.0.1:0", admin="127.0.0.1:0") == ""


def test_loopback_is_known() -> None:
    for text in ("1", "localhost:1", "LocalHost:1", "[::1]:1", "127.3.2.1:1"):
        assert parse_listen(text, source="x").is_loopback
    for text in (":1", "10.0.0.1:1", "host:1"):
        assert not parse_listen(text, source="x").is_loopback


@pytest.mark.parametrize(
    ("listen", "advertise", "url"),
    [
        ("8080", "gpu1", "http://127.0.0.1:8080"),
        (":8080", "gpu1", "http://gpu1:8080"),
        (":8080", "", "http://127.0.0.1:8080"),
        ("[::]:8080", "fd00::7", "http://[fd00::7]:8080"),
        ("10.0.0.7:80", "gpu1", "http://10.0.0.7:80"),
    ],
)
def test_clients_are_told_an_address_that_answers(listen: str, advertise: str, url: str) -> None:
    assert client_url(parse_listen(listen, source="x"), advertise) == url
