"""Bytes a second through the machine's ports, between two calls: read from /sys, nothing is spawned.

A counter that went back, stopped or ran faster than its port can says nothing of this moment: that port has no figure,
and the others keep theirs. A driver that is loaded anew or a port that is reset begins its counters at 0.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.discovery.hardware_ports import INFINIBAND, NETWORK, HardwarePort, infiniband_ports, network_ports

LEAST_S = 1.0
"""Drivers renew their counters about as often: over less than this a rate would be chance, and the last one stands."""
PLAIN_BPS = 10**9
"""A rate up to here is not held against what the port can do."""
MOST_BPS = 1.6e12
"""No port is faster, whatever it does not say of itself."""
SLACK = 2.0
"""Counters move in jumps, so that a full port may seem this much faster for a moment."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes a second of all ports of a kind together; none where no port tells."""

    network_in: float | None = None
    network_out: float | None = None
    infiniband_in: float | None = None
    infiniband_out: float | None = None


NO_TRAFFIC = Traffic()
"""No port tells."""


class TrafficMeter:
    """Remembers each port's counters from one call to the next."""

    def __init__(self, ib_root: Path, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._ib_root = ib_root
        self._root = root
        self._clock = clock
        self._at = -math.inf
        self._last: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        self._told = NO_TRAFFIC

    def rates(self) -> Traffic:
        """Since the last call; none at the first. Blocking for a moment."""
        now = self._clock()
        passed = now - self._at
        if passed < LEAST_S:
            return self._told
        read: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        rates: dict[str, list[float]] = {}
        for port in (*network_ports(self._root), *infiniband_ports(self._ib_root)):
            if port.carried_by_another:
                continue
            key = port.kind, port.name
            read[key] = port.bytes_counted()
            ways = zip(("in", "out"), self._last.get(key, (None, None)), read[key], strict=True)
            for way, before, counted in ways:
                rate = _rate(port, before, counted, passed)
                if rate is not None:
                    rates.setdefault(f"{port.kind}_{way}", []).append(rate)
        self._at, self._last = now, read
        self._told = Traffic(
            network_in=_sum(rates.get(f"{NETWORK}_in")),
            network_out=_sum(rates.get(f"{NETWORK}_out")),
            infiniband_in=_sum(rates.get(f"{INFINIBAND}_in")),
            infiniband_out=_sum(rates.get(f"{INFINIBAND}_out")),
        )
        return self._told


def _rate(port: HardwarePort, before: int | None, counted: int | None, passed_s: float) -> float | None:
    """Bytes a second; none where the counters do not tell."""
    if before is None or counted is None or counted < before:
        return None
    rate = (counted - before) / passed_s
    if 8 * rate <= PLAIN_BPS:
        return rate
    return rate if 8 * rate <= SLACK * (port.rate_bps or MOST_BPS) else None


def _sum(rates: list[float] | None) -> float | None:
    return sum(rates) if rates else None
