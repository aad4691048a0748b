"""Disks, network ports and InfiniBand ports, and how many NUMA nodes have CPUs: read from /sys, nothing is spawned."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from llmgw.core.cluster import MachinePart

MAX_PARTS = 64
"""Parts told of one node."""
_SECTOR = 512
"""/sys/block counts in these, whatever the disk does."""
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd|zd)\d*")
_STATE = re.compile(r"[0-9]+: *([A-Za-z]+)")
_RATE = re.compile(r"([0-9]{1,4})(\.[0-9])? Gb/sec")
_MAX_READ = 4096


def machine_parts(ib_root: Path, *, root: Path = Path("/")) -> tuple[MachinePart, ...]:
    """Whole disks, ports of network cards that exist as hardware, InfiniBand ports."""
    found = [*_disks(root), *_networks(root), *_infiniband(ib_root)]
    return tuple(found[:MAX_PARTS])


def cpu_nodes(*, root: Path = Path("/")) -> int:
    """NUMA nodes that have CPUs; a GPU's or an expander's memory is a node without. 0 where the kernel does not say."""
    nodes = _children(root / "sys/devices/system/node")
    return sum(1 for node in nodes if re.fullmatch(r"node\d+", node.name) and _read(node / "cpulist"))


def _disks(root: Path) -> Iterator[MachinePart]:
    for disk in _children(root / "sys/block"):
        sectors = _number(disk / "size")
        if sectors and not _NO_DISK.match(disk.name):
            yield MachinePart(kind="disk", name=disk.name, size_bytes=sectors * _SECTOR)


def _networks(root: Path) -> Iterator[MachinePart]:
    for port in _children(root / "sys/class/net"):
        # A bridge, a tunnel or a container's end has no device behind it.
        if not os.path.exists(port / "device"):
            continue
        speed = _number(port / "speed") or 0
        yield MachinePart(kind="network", name=port.name, state=_read(port / "operstate"), rate_bps=speed * 10**6)


def _infiniband(ib_root: Path) -> Iterator[MachinePart]:
    for device in _children(ib_root):
        for port in _children(device / "ports"):
            state = _STATE.match(_read(port / "state"))
            rate = _RATE.match(_read(port / "rate"))
            bits = int(float(f"{rate[1]}{rate[2] or ''}") * 10**9) if rate else 0
            name = f"{device.name}/{port.name}"
            yield MachinePart(kind="infiniband", name=name, state=state[1].lower() if state else "", rate_bps=bits)


def _children(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() and text.isascii() and len(text) < 16 else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_READ).decode(errors="replace").strip()
    except OSError:
        return ""
