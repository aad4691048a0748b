"""Disks, network ports and InfiniBand ports, and how many NUMA nodes have CPUs: read from /sys, nothing is spawned."""

import re
from collections.abc import Iterator
from pathlib import Path

from agent.discovery.hardware_ports import (
    HardwarePort,
    children,
    infiniband_ports,
    network_ports,
    number,
    text,
)
from llmgw.core.cluster import MachinePart

MAX_PARTS = 64
"""Parts told of one node."""
_SECTOR = 512
"""/sys/block counts in these, whatever the disk does."""
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd|zd)\d*")
_STATE = re.compile(r"[0-9]+: *([A-Za-z]+)")


def machine_parts(ib_root: Path, *, root: Path = Path("/")) -> tuple[MachinePart, ...]:
    """Whole disks, ports of network cards that exist as hardware, InfiniBand ports."""
    found = [*_disks(root), *_networks(root), *_infiniband(ib_root)]
    return tuple(found[:MAX_PARTS])


def cpu_nodes(*, root: Path = Path("/")) -> int:
    """NUMA nodes that have CPUs; a GPU's or an expander's memory is a node without. 0 where the kernel does not say."""
    nodes = children(root / "sys/devices/system/node")
    return sum(1 for node in nodes if re.fullmatch(r"node\d+", node.name) and text(node / "cpulist"))


def _disks(root: Path) -> Iterator[MachinePart]:
    for disk in children(root / "sys/block"):
        sectors = number(disk / "size")
        if sectors and not _NO_DISK.match(disk.name):
            yield MachinePart(kind="disk", name=disk.name, size_bytes=sectors * _SECTOR)


def _networks(root: Path) -> Iterator[MachinePart]:
    for port in network_ports(root):
        yield _part(port, state=text(port.path / "operstate"))


def _infiniband(ib_root: Path) -> Iterator[MachinePart]:
    for port in infiniband_ports(ib_root):
        state = _STATE.match(text(port.path / "state"))
        yield _part(port, state=state[1].lower() if state else "")


def _part(port: HardwarePort, *, state: str) -> MachinePart:
    return MachinePart(
        kind=port.kind,
        name=port.name,
        state=state,
        rate_bps=port.rate_bps,
        errors=port.errors(),
        link_downs=port.link_downs(),
    )
