"""The reactor's walk over what is ready, in C and in Python: whom it calls, what ends it, and what an error leaves."""

import logging
import select
import socket
from collections.abc import Callable, Iterator

import pytest
import trio

from llmgw.core.routing import RoutedReplica
from llmgw.router import reactor as reactor_module
from llmgw.router.limits import TURN_S
from llmgw.router.pool import Pool
from llmgw.router.reactor import READ_EVENTS, Reactor

pytestmark = pytest.mark.usefixtures("either_pass")

MOST_READS = 5000
"""After so many a stream without end gives up waiting for others to have their turn."""
TIMES = 12
"""Whose turn comes first is left to chance."""


class Ends:
    """Pairs of sockets whose near ends the reactor watches."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.called: list[int] = []

    def add(self, act: Callable[[int], None] = lambda mask: None) -> int:
        """One more with something to read; `act` is called with the mask, after reading."""
        near, far = socket.socketpair()
        near.setblocking(False)
        self.pairs.append((near, far))
        number = len(self.pairs) - 1

        def handler(mask: int) -> None:
            self.called.append(number)
            near.recv(1024)
            act(mask)

        self.reactor.add(near.fileno(), READ_EVENTS, handler)
        far.sendall(b"x")
        return number

    def say(self, number: int) -> None:
        """Something more to read."""
        self.pairs[number][1].sendall(b"y")

    def fd(self, number: int) -> int:
        """What the reactor knows it by."""
        return self.pairs[number][0].fileno()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """None at first."""
    made = Ends()
    yield made
    for pair in made.pairs:
        for sock in pair:
            sock.close()
    made.reactor.close()


def test_everyone_with_something_is_called_once_with_what_epoll_said(ends: Ends) -> None:
    masks: list[int] = []

    def note(mask: int) -> None:
        masks.append(mask)
        if mask & select.EPOLLRDHUP:
            ends.reactor.remove(ends.fd(1))

    for _ in range(3):
        ends.add(note)
    before = ends.reactor.now
    ends.reactor.turn()
    assert sorted(ends.called) == [0, 1, 2]
    assert masks == [select.EPOLLIN] * 3
    assert ends.reactor.now > before
    ends.pairs[1][1].close()
    ends.reactor.turn()
    assert ends.called[3:] == [1]
    assert masks[3] & select.EPOLLRDHUP


def test_whoever_is_removed_in_the_same_batch_is_not_called(ends: Ends) -> None:
    def remove_others(_mask: int) -> None:
        for number in range(3):
            if number != ends.called[-1]:
                ends.reactor.remove(ends.fd(number))

    for _ in range(3):
        ends.add(remove_others)
    ends.reactor.turn()
    assert len(ends.called) == 1


def test_a_handler_may_take_itself_out_and_put_another_in_its_place(ends: Ends) -> None:
    again: list[int] = []

    def second(mask: int) -> None:
        again.append(mask)
        ends.reactor.remove(ends.fd(0))

    def first(_mask: int) -> None:
        ends.reactor.handlers[ends.fd(0)] = second
        ends.say(0)

    ends.add(first)
    ends.reactor.turn()
    ends.reactor.turn()
    assert (ends.called, again) == ([0], [select.EPOLLIN])


def test_a_fault_of_one_is_logged_and_leaves_the_others(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_mask: int) -> None:
        raise ZeroDivisionError("of one")

    ends.add(fail)
    ends.add()
    with caplog.at_level(logging.ERROR):
        ends.reactor.turn()
    assert sorted(ends.called) == [0, 1]
    assert ends.fd(0) not in ends.reactor.handlers
    assert ends.fd(1) in ends.reactor.handlers
    (record,) = caplog.records
    assert record.getMessage() == "stream handler failed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert "in fail" in caplog.text, "the log says where"


def test_what_is_no_fault_of_a_handler_ends_the_turn(ends: Ends) -> None:
    def interrupt(_mask: int) -> None:
        raise KeyboardInterrupt

    ends.add(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ends.reactor.turn()
    assert ends.fd(0) in ends.reactor.handlers


def test_a_woken_task_ends_the_turn_after_the_batch(ends: Ends) -> None:
    def go_on(_mask: int) -> None:
        ends.reactor.woken = len(ends.called) >= 3
        ends.say(0)

    ends.add(go_on)
    ends.reactor._events_per_s = reactor_module.NAP_FROM_PER_S * 2
    ends.reactor.turn()
    assert ends.called == [0] * 3


def test_a_turn_after_one_that_woke_a_task_serves_what_is_ready_and_no_more(ends: Ends) -> None:
    ends.add(lambda mask: ends.say(0))
    ends.reactor.woken = True
    ends.reactor.turn()
    assert ends.called == [0], "the woken task waited for the streams of others"
    ends.reactor.turn()
    assert len(ends.called) > 2


def test_a_stream_without_end_leaves_the_others_their_turn(ends: Ends) -> None:
    ends.add(lambda mask: ends.say(0))
    ends.reactor.turn()
    served = len(ends.called)
    assert served > 1, f"one read in {TURN_S} s"
    ends.reactor.turn()
    assert len(ends.called) > served


def test_a_new_connection_to_an_engine_does_not_wait_for_streams(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(_mask: int) -> None:
        if len(ends.called) < MOST_READS:
            ends.say(0)

    async def connect() -> None:
        with socket.create_server(("127.0.0.1", 0)) as engine:
            endpoint = f"http://127.0.0.1:{engine.getsockname()[1]}"
            pool = Pool(ends.reactor, RoutedReplica(id="r", model="m", endpoint=endpoint), "ek")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ends.reactor.run)
                for _ in range(TIMES):
                    (await pool.connect(60)).close()
                nursery.cancel_scope.cancel()

    monkeypatch.setattr(reactor_module, "TURN_S", 3600.0)
    ends.add(go_on)
    trio.run(connect)
    assert len(ends.called) < MOST_READS, "it was made when no stream had anything more"


def test_what_is_ready_is_counted(ends: Ends) -> None:
    for _ in range(5):
        ends.add()
    before = ends.reactor._events_per_s
    ends.reactor.turn()
    assert ends.reactor._events_per_s > before
