"""The profile of Hopper and later, through NVML's GPM: figures over the time between two samples.

A card in MIG mode, or one that is gone, begins anew. A reader that found no card with GPM never tries again.
"""

from contextlib import suppress
from typing import Any

import msgspec

from agent.discovery.gpu import CardSample
from agent.discovery.nvml_calls import Nvml, count, number

_VERSION = 1
"""NVML_GPM_METRICS_GET_VERSION."""
MOST_PERCENT = 101.0
"""Counters are read a moment apart, so that a full share may come out a little over 100; more is no share."""
_METRICS = {2: "sm_active_percent", 3: "sm_occupancy_percent", 5: "tensor_active_percent", 10: "dram_active_percent"}
"""nvmlGpmMetricId_t → what we call it: SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL."""


class Gpm:
    """Keeps each card's last sample."""

    def __init__(self, calls: Nvml) -> None:
        self._calls = calls
        self._last: dict[str, object] = {}
        self._supported: dict[str, bool] = {}

    def added_to(self, sample: CardSample, handle: object, *, split: bool) -> CardSample:
        """The sample with the profile since the last one, where there is one."""
        uuid = sample.uuid
        if split:
            self._forget(uuid)
            return sample
        if not self._supports(uuid, handle):
            return sample
        now = self._calls.get("nvmlGpmSampleAlloc")
        if now is None or self._calls.get("nvmlGpmSampleGet", handle, now) is None:
            self._free(now)
            self._forget(uuid)
            return sample
        before, self._last[uuid] = self._last.get(uuid), now
        if before is None:
            return sample
        figures = self._between(before, now)
        self._free(before)
        if not figures:
            return sample
        return msgspec.structs.replace(sample, **figures, profile_source="gpm")

    def close(self) -> None:
        """Free every sample."""
        for uuid in tuple(self._last):
            self._forget(uuid)

    def _supports(self, uuid: str, handle: object) -> bool:
        if uuid not in self._supported:
            said = self._calls.get("nvmlGpmQueryDeviceSupport", handle)
            self._supported[uuid] = count(getattr(said, "isSupportedDevice", None)) == 1
        return self._supported[uuid]

    def _between(self, before: object, now: object) -> dict[str, float]:
        """Figures from two samples; a metric that has none, or no share, is left out."""
        query: Any = self._calls.get("c_nvmlGpmMetricsGet_t")
        if query is None:
            return {}
        found = {}
        with suppress(AttributeError, TypeError, IndexError):
            query.version, query.numMetrics = _VERSION, len(_METRICS)
            query.sample1, query.sample2 = before, now
            for place, metric in enumerate(_METRICS):
                query.metrics[place].metricId = metric
            if self._calls.get("nvmlGpmMetricsGet", query) is None:
                return {}
            for place, name in enumerate(_METRICS.values()):
                share = number(query.metrics[place].value)
                if query.metrics[place].nvmlReturn == 0 and share is not None and 0 <= share <= MOST_PERCENT:
                    found[name] = min(100.0, round(share, 2))
        return found

    def _forget(self, uuid: str) -> None:
        self._free(self._last.pop(uuid, None))

    def _free(self, sample: object) -> None:
        if sample is not None:
            self._calls.get("nvmlGpmSampleFree", sample)
