"""What wears out, through NVML: counts, and the errors (Xids) that the driver reports while the agent runs."""

import time
from collections.abc import Callable, Mapping

import msgspec

from agent.discovery.nvml_calls import Nvml, count, text
from llmgw.core.wear import CardWear

MAX_EVENTS = 64
"""Events taken at once; the others wait for the next minute."""
MAX_LINKS = 36
"""NVLinks a card has at most."""
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
"""NVML_PAGE_RETIREMENT_CAUSE_*."""
_REPLAY, _RECOVERY = 0, 1
"""NVML_NVLINK_ERROR_DL_*."""
_XID_EVENT = 8
"""nvmlEventTypeXidCriticalError."""


def card_wear(calls: Nvml, handle: object) -> CardWear:
    """A card's counts; what it does not keep is none."""
    pending = calls.count("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    rows = _rows(calls.get("nvmlDeviceGetRemappedRows", handle))
    replays, recoveries = _links(calls, handle)
    return CardWear(
        pcie_replays=calls.count("nvmlDeviceGetPcieReplayCounter", handle),
        retired_pages_sbe=_length(calls.get("nvmlDeviceGetRetiredPages", handle, _SINGLE_BIT)),
        retired_pages_dbe=_length(calls.get("nvmlDeviceGetRetiredPages", handle, _DOUBLE_BIT)),
        retirement_pending=None if pending is None else pending == 1,
        remapped_rows=None if rows is None else rows[0] + rows[1],
        remap_pending=None if rows is None else rows[2] > 0,
        remap_failed=None if rows is None else rows[3] > 0,
        nvlink_replay_errors=replays,
        nvlink_recovery_errors=recoveries,
    )


class XidEvents:
    """Counts the driver's error events by card. An event is noticed, never waited for."""

    def __init__(self, calls: Nvml, *, wall: Callable[[], float] = time.time) -> None:
        self._calls = calls
        self._wall = wall
        self._set = calls.get("nvmlEventSetCreate")
        self._watched: set[str] = set()
        self._seen: dict[str, tuple[int, int, float]] = {}
        """UUID → errors, the last one's number, when it was noticed."""

    def watch(self, handle: object, uuid: str) -> None:
        """Ask for a card's events, once; a card that has none is not watched."""
        if self._set is None or uuid in self._watched:
            return
        kinds = self._calls.count("nvmlDeviceGetSupportedEventTypes", handle)
        # The call that registers gives nothing back, so what it supports is asked first.
        if kinds is not None and kinds & _XID_EVENT:
            self._calls.get("nvmlDeviceRegisterEvents", handle, _XID_EVENT, self._set)
            self._watched.add(uuid)

    def added_to(self, worn: Mapping[str, CardWear]) -> dict[str, CardWear]:
        """The counts with the errors noticed so far; a card that is not watched has no number of them."""
        self._collect()
        return {uuid: self._with_errors(uuid, wear) for uuid, wear in worn.items()}

    def close(self) -> None:
        """Let the events go."""
        if self._set is not None:
            self._calls.get("nvmlEventSetFree", self._set)

    def _with_errors(self, uuid: str, wear: CardWear) -> CardWear:
        if uuid not in self._watched:
            return wear
        number, last, at = self._seen.get(uuid, (0, None, None))
        return msgspec.structs.replace(wear, xid_count=number, xid_last=last, xid_at=at)

    def _collect(self) -> None:
        for _ in range(MAX_EVENTS if self._watched else 0):
            event = self._calls.get("nvmlEventSetWait_v2", self._set, 0)
            if event is None:
                return
            uuid = text(self._calls.get("nvmlDeviceGetUUID", getattr(event, "device", None)))
            number = count(getattr(event, "eventData", None))
            if uuid and number is not None and count(getattr(event, "eventType", None)) == _XID_EVENT:
                self._seen[uuid] = (self._seen.get(uuid, (0, 0, 0.0))[0] + 1, number, self._wall())


def _links(calls: Nvml, handle: object) -> tuple[int | None, int | None]:
    """Replays and recoveries of all links that are up; none for a card without links."""
    replays: list[int] = []
    recoveries: list[int] = []
    for link in range(MAX_LINKS):
        state = calls.count("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        if state != 1:
            continue
        for found, kind in ((replays, _REPLAY), (recoveries, _RECOVERY)):
            errors = calls.count("nvmlDeviceGetNvLinkErrorCounter", handle, link, kind)
            if errors is not None:
                found.append(errors)
    return (sum(replays) if replays else None), (sum(recoveries) if recoveries else None)


def _rows(value: object) -> tuple[int, int, int, int] | None:
    """Corrected, uncorrected, pending, failed."""
    if not isinstance(value, list | tuple) or len(value) != 4:
        return None
    found = [count(part) for part in value]
    kept = [part for part in found if part is not None]
    return (kept[0], kept[1], kept[2], kept[3]) if len(kept) == 4 else None


def _length(pages: object) -> int | None:
    return len(pages) if isinstance(pages, list | tuple) else None
