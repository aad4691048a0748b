"""Which port an engine gets: one that is free wherever it may listen."""

import socket

import pytest

from agent.ports import free_port
from llmgw.core.errors import Unavailable
from tests.support.agent_node import free_ports


@pytest.fixture
def ports() -> range:
    first, _, last = free_ports(20).partition("-")
    return range(int(first), int(last) + 1)


@pytest.mark.parametrize("taken_at", ["127.0.0.2", "127.0.0.1"])
def test_a_port_that_is_taken_on_the_host_or_on_loopback_is_passed_over(ports: range, taken_at: str) -> None:
    first = free_port("127.0.0.2", ports, taken=(), hint="r1/0")
    with socket.create_server((taken_at, first)):
        assert free_port("127.0.0.2", ports, taken=(), hint="r1/0") != first
    assert free_port("127.0.0.2", ports, taken=(), hint="r1/0") == first


def test_a_port_that_another_shard_has_is_passed_over(ports: range) -> None:
    first = free_port("127.0.0.1", ports, taken=(), hint="r1/0")
    assert free_port("127.0.0.1", ports, taken={first}, hint="r1/0") != first


def test_a_host_that_is_not_this_machine_is_said(ports: range) -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1.*engine_host or address in agent\.yaml"):
        free_port("192.0.2.1", ports, taken=(), hint="r1/0")
