"""Addresses: every form is taken as documented or refused naming source, value and the form wanted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.addresses import Address, client_url, parse_listen
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


def test_loopback_is_known() -> None:
    for text in ("1", "localhost:1", "[::1]:1", "127.3.2.1:1"):
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
