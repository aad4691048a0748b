"""Ports that exist as hardware: network cards' and InfiniBand's, where the kernel tells of them, and what it counts."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NETWORK, INFINIBAND = "network", "infiniband"
_RATE = re.compile(r"([0-9]{1,4})(\.[0-9])? Gb/sec")
_OVER_INFINIBAND = "32"
"""Link type of a network port whose packets travel over an InfiniBand port (ARPHRD_INFINIBAND)."""
_WORD_BYTES = 4
"""InfiniBand counts data in words of these."""
_STOPPED_AT = 2**32 - 1
"""A counter of 32 bits stands still here: InfiniBand's do not begin anew."""
_MAX_READ = 4096


@dataclass(frozen=True, kw_only=True)
class HardwarePort:
    """One port. Bridges, tunnels, bonds and containers' ends are none: there is no device behind them."""

    kind: str
    """NETWORK or INFINIBAND."""
    name: str
    """`eth0`; `mlx5_0/1` for port 1 of an InfiniBand device."""
    path: Path

    @property
    def rate_bps(self) -> int:
        """Bits a second it is connected at; 0 where the kernel does not say."""
        if self.kind == NETWORK:
            return (number(self.path / "speed") or 0) * 10**6
        rate = _RATE.match(text(self.path / "rate"))
        return int(float(f"{rate[1]}{rate[2] or ''}") * 10**9) if rate else 0

    @property
    def carried_by_another(self) -> bool:
        """Whether its bytes are counted again by an InfiniBand port."""
        return self.kind == NETWORK and text(self.path / "type") == _OVER_INFINIBAND

    def bytes_counted(self) -> tuple[int | None, int | None]:
        """Bytes that came in and went out since its counters began; none for one that is not there or stopped."""
        if self.kind == NETWORK:
            return number(self.path / "statistics/rx_bytes"), number(self.path / "statistics/tx_bytes")
        return self._words("port_rcv_data"), self._words("port_xmit_data")

    def errors(self) -> int | None:
        """Packets that came or went damaged, since its counters began; none where nothing counts them."""
        if self.kind == NETWORK:
            return _sum(number(self.path / f"statistics/{name}") for name in ("rx_errors", "tx_errors"))
        return _sum(number(self.path / f"counters/{name}") for name in ("port_rcv_errors", "symbol_error"))

    def link_downs(self) -> int | None:
        """Times its link went down; none where nothing counts them."""
        if self.kind == NETWORK:
            return number(self.path / "carrier_down_count")
        return number(self.path / "counters/link_downed")

    def _words(self, name: str) -> int | None:
        words = number(self.path / "counters" / name)
        return None if words is None or words == _STOPPED_AT else words * _WORD_BYTES


def network_ports(root: Path = Path("/")) -> list[HardwarePort]:
    """Ports of network cards, by name."""
    return [
        HardwarePort(kind=NETWORK, name=port.name, path=port)
        for port in children(root / "sys/class/net")
        if os.path.exists(port / "device")
    ]


def infiniband_ports(ib_root: Path) -> list[HardwarePort]:
    """InfiniBand ports, by device and number. What RDMA sends over Ethernet goes through such a port, too."""
    return [
        HardwarePort(kind=INFINIBAND, name=f"{device.name}/{port.name}", path=port)
        for device in children(ib_root)
        for port in children(device / "ports")
    ]


def children(path: Path) -> list[Path]:
    """What a directory holds, in order; nothing when it is not there."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def number(path: Path) -> int | None:
    """A file that holds one whole number; none for every other, and for one that is not there."""
    found = text(path)
    return int(found) if found.isdigit() and found.isascii() and len(found) <= 20 else None


def text(path: Path) -> str:
    """A small file's text; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_READ).decode(errors="replace").strip()
    except OSError:
        return ""


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
