"""The operator's Prometheus, read for what is older than this server remembers. Asked under a deadline, bounded, once a
series; what goes wrong is a sentence, and nothing of it reaches the store's token.

Its address and the token's file are settings, so that a change needs no restart.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
import trio

from llmgw.api.series import Series
from llmgw.control.history.metrics_token import read_token
from llmgw.control.history.promql import query
from llmgw.control.history.series import Wanted
from llmgw.core.errors import LlmgwError, Unavailable
from llmgw.transfer.errors import TransferError
from llmgw.transfer.http import Remote, Timeouts, redacted, request

DEADLINE_S = 15.0
"""All series of one question together."""
TIMEOUTS = Timeouts(connect_s=5.0, stall_s=10.0)
AT_ONCE = 4
"""Series asked for at the same time."""
MAX_ANSWER_BYTES = 1024 * 1024
"""Of one series; 2,000 points are 60 KB."""
MAX_REASON_CHARS = 200


class _Matrix(msgspec.Struct):
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Matrix] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class StoreSettings(NamedTuple):
    """Where it is, and the file with its token; an empty address is no store."""

    url: str = ""
    token_file: str = ""


def check_url(url: str) -> str:
    """What is wrong with an address of a metrics store, as a sentence; nothing when it will do."""
    try:
        split = urlsplit(url)
        fine = split.scheme in ("http", "https") and bool(split.hostname) and "@" not in split.netloc
        fine = fine and not split.query and not split.fragment and split.port != 0
    except ValueError:
        fine = False
    shown = redacted(url) if "@" in url else url
    return "" if fine or not url else f"{shown[:80]!r} is not http://HOST:PORT or https://HOST, without user or query"


@dataclass
class PrometheusStore:
    """`MetricsStore` over Prometheus' HTTP API."""

    settings: Callable[[], StoreSettings]
    private: Sequence[Path] = ()
    """Files whose content is never sent to it."""
    deadline_s: float = DEADLINE_S

    @property
    def configured(self) -> bool:
        """Whether an address is set."""
        return bool(self.settings().url)

    @property
    def where(self) -> str:
        """Its address."""
        return redacted(self.settings().url)

    async def read(self, wanted: Wanted) -> tuple[Series, ...]:
        """Every series of `wanted`; raises LlmgwError."""
        asked = [(found, figure) for found in wanted.of for figure in wanted.figures]
        points: dict[int, tuple[float | None, ...]] = {}
        errors: list[LlmgwError] = []
        limit = trio.CapacityLimiter(AT_ONCE)
        headers = self._headers()

        async def read_one(place: int, text: str) -> None:
            async with limit:
                if errors:
                    return
                try:
                    points[place] = await self._points(text, wanted, headers)
                except LlmgwError as error:
                    errors.append(error)

        with trio.move_on_after(self.deadline_s) as scope:
            async with trio.open_nursery() as nursery:
                for place, (found, figure) in enumerate(asked):
                    nursery.start_soon(read_one, place, query(figure.name, found, wanted.step_s))
        if scope.cancelled_caught:
            raise Unavailable(f"it did not answer within {self.deadline_s:g} s")
        if errors:
            raise errors[0]
        return tuple(
            Series(of=str(found.of), figure=figure.name, unit=figure.unit, points=points[place])
            for place, (found, figure) in enumerate(asked)
        )

    def _headers(self) -> Mapping[str, str]:
        path = self.settings().token_file
        if not path:
            return {}
        return {"Authorization": f"Bearer {read_token(path, self.private)}"}

    async def _points(self, text: str, wanted: Wanted, headers: Mapping[str, str]) -> tuple[float | None, ...]:
        if not text:
            return (None,) * _count(wanted)
        step = wanted.step_s
        # Prometheus' points look back: the one at the end of a span is of that span.
        first = wanted.start + step
        asked = {"query": text, "start": f"{first:.3f}", "step": f"{step:g}"}
        asked["end"] = f"{first + step * (_count(wanted) - 1):.3f}"
        remote = Remote(
            url=f"{self.settings().url.rstrip('/')}/api/v1/query_range?{urlencode(asked)}",
            headers=headers,
            proxies=False,
            timeouts=TIMEOUTS,
        )
        try:
            async with request(remote) as response:
                body = await response.read(MAX_ANSWER_BYTES)
                answer = _decoded(body)
                if response.status != 200 or answer is None or answer.status != "success" or answer.data is None:
                    raise Unavailable(_refusal(response.status, answer))
        except TransferError as error:
            raise Unavailable(error.message) from error
        return _spread(answer.data.result, first, step, _count(wanted))


def _count(wanted: Wanted) -> int:
    return max(1, math.ceil((wanted.end - wanted.start) / wanted.step_s))


def _decoded(body: bytes) -> _Answer | None:
    try:
        return msgspec.json.decode(body, type=_Answer, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _refusal(status: int, answer: _Answer | None) -> str:
    if answer is not None and answer.error:
        return f"it answers {status}: {answer.error[:MAX_REASON_CHARS]}"
    return f"it answers {status} and no result of a query; is it Prometheus?"


def _spread(found: Sequence[_Matrix], first: float, step: float, count: int) -> tuple[float | None, ...]:
    """Points in their places; NaN, infinities and what does not fit are not reported."""
    points: list[float | None] = [None] * count
    for at, text in found[0].values if found else ():
        place = round((at - first) / step)
        try:
            value = float(text)
        except ValueError:
            continue
        if 0 <= place < count and math.isfinite(value):
            points[place] = round(value, 3)
    return tuple(points)
