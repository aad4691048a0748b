"""Xids from the kernel's log: what the driver complained of since the machine started, agent or no agent.

`/dev/kmsg` is root's to read on most machines, and is not there in containers; then the driver's own events have to do.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.discovery.words import bus_id
from llmgw.core.wear import CardWear

MAX_RECORDS = 50_000
"""Records read at once; the kernel's ring holds fewer."""
_RECORD_BYTES = 8192
"""The kernel's limit for one."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})(?: GPU-I:\d{1,4})?\): (\d{1,4})\b")
"""Of a MIG instance its number stands behind its card's address, and old drivers leave `PCI:` out."""
_STAMP = re.compile(r"\d+,\d+,(\d+),")


@dataclass(frozen=True, kw_only=True)
class Xids:
    """Errors of one card."""

    count: int
    last: int
    at: float
    """Unix seconds of the last."""


def parse_record(record: str) -> tuple[str, int, float] | None:
    """Bus address, number and seconds after boot of an Xid record; none for every other record."""
    match, stamp = _XID.search(record), _STAMP.match(record)
    if match is None or stamp is None:
        return None
    return bus_id(match[1]), int(match[2]), int(stamp[1]) / 1e6


class KernelLog:
    """Reads on from where it was. Every call is short: it takes what is there and never waits."""

    def __init__(
        self,
        path: Path = Path("/dev/kmsg"),
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._clock = clock
        self._seen: dict[str, Xids] = {}
        try:
            self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = None

    @property
    def readable(self) -> bool:
        """Whether the log can be read here."""
        return self._fd is not None

    def added_to(self, worn: Mapping[str, CardWear], addresses: Mapping[str, str]) -> dict[str, CardWear]:
        """The counts with the log's errors in place of the driver's events; `addresses` are UUID → bus address."""
        self._read_on()
        if self._fd is None:
            return dict(worn)
        return {uuid: self._with_errors(wear, addresses.get(uuid, "")) for uuid, wear in worn.items()}

    def close(self) -> None:
        """Let the log go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _with_errors(self, wear: CardWear, address: str) -> CardWear:
        if not address:
            return wear
        seen = self._seen.get(address)
        if seen is None:
            return msgspec.structs.replace(wear, xid_count=0, xid_last=None, xid_at=None)
        return msgspec.structs.replace(wear, xid_count=seen.count, xid_last=seen.last, xid_at=seen.at)

    def _read_on(self) -> None:
        for _ in range(MAX_RECORDS if self._fd is not None else 0):
            assert self._fd is not None
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # records were overwritten before they were read
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            if not record:
                return
            self._take(record.decode(errors="replace"))

    def _take(self, text: str) -> None:
        # A device gives one record a read; a file in its place may give several.
        for line in text.splitlines():
            found = parse_record(line)
            if found is not None:
                bus, number, after_boot = found
                at = self._wall() - (self._clock() - after_boot)
                before = self._seen.get(bus)
                self._seen[bus] = Xids(count=(before.count if before else 0) + 1, last=number, at=round(at, 1))
