"""A process that counts like a router, told what to do line by line, to be stopped and killed.

`python -m tests.support.counting_router COUNTERS`. Each line of standard input is one command, each answered by one
line of JSON:

    use HEX...        the key's record, then those above it, as msgpack in hex
    now SECONDS       sets the clock
    admit N AT T O W  N attempts from monotonic time AT on, of T tokens, O more to write, W micros at worst: how many
    settle N T C      the N oldest took T tokens and C micros each
    release N         the N oldest are taken back
    churn             admits and settles without end; answered when it begins
    stop              admits one, stopping (SIGSTOP) inside the section; answered when it woke
"""

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from llmgw.core.limits import ScopeRecord
from llmgw.core.routing import KeyRecord
from llmgw.router import rows, slots
from llmgw.router.counters import HEAD, Counters
from llmgw.router.limiter import Limiter, Reservation
from llmgw.router.ports import Refusal
from llmgw.router.scopes import Chain, Demand
from tests.support.limits import Clock, chain_of


class CountingRouter:
    """One router process's limiter and what it holds."""

    def __init__(self, path: Path) -> None:
        self.counters = Counters.open(path)
        assert slots.claim(self.counters)
        self.clock = Clock()
        self.limiter = Limiter(self.counters, clock=self.clock)
        self.chain: Chain | None = None
        self.held: list[Reservation] = []

    def do(self, command: str, *words: str) -> object:
        """One command."""
        doing: Callable[..., object] = getattr(self, command)
        return doing(*words)

    def use(self, record: str, *above: str) -> int:
        """The chain."""
        key = msgspec.msgpack.decode(bytes.fromhex(record), type=KeyRecord)
        self.chain = chain_of(key, *(msgspec.msgpack.decode(bytes.fromhex(a), type=ScopeRecord) for a in above))
        return len(self.chain.scopes)

    def now(self, seconds: str) -> float:
        """The clock."""
        self.clock.at = float(seconds)
        return self.clock.at

    def admit(self, attempts: str, at: str, tokens: str, output: str, worst: str) -> int:
        """Attempts."""
        assert self.chain is not None
        wanted = Demand(int(tokens), int(output), True, 1, int(worst))
        before = len(self.held)
        while time.monotonic() < float(at):
            pass
        for _ in range(int(attempts)):
            try:
                self.held.append(self.limiter.admit(self.chain, wanted))
            except Refusal:
                pass
        return len(self.held) - before

    def settle(self, count: str, tokens: str, cost: str) -> int:
        """Ends."""
        for reservation in self.held[: int(count)]:
            reservation.settle(int(tokens), int(cost))
        del self.held[: int(count)]
        return len(self.held)

    def release(self, count: str) -> int:
        """Refusals after all."""
        for reservation in self.held[: int(count)]:
            reservation.release()
        del self.held[: int(count)]
        return len(self.held)

    def churn(self) -> None:
        """Requests without end."""
        assert self.chain is not None
        print("1", flush=True)
        while True:
            held = self.limiter.admit(self.chain, Demand(3, 0, True, 1, 5))
            held.settle(1, 1)

    def stop(self) -> int:
        """Stopped once a row is read, then on as if nothing had been."""
        vars(rows)["HEAD"] = _StopsOnce()
        return self.admit("1", "0", "0", "0", "0")


class _StopsOnce:
    """Reads a row's words like `rows.HEAD`, in whose place it stands, and stops this process once."""

    def unpack_from(self, memory: mmap.mmap, base: int) -> tuple[int, ...]:
        """The words, read before the stop."""
        vars(rows)["HEAD"] = HEAD
        words = HEAD.unpack_from(memory, base)
        os.kill(os.getpid(), signal.SIGSTOP)
        return words


def main() -> None:
    """Obey until the input ends."""
    router = CountingRouter(Path(sys.argv[1]))
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        print(json.dumps(router.do(*line.split())), flush=True)


if __name__ == "__main__":
    main()
