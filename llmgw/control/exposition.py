"""A page in Prometheus's text format: a family's HELP and TYPE come once, before all of its samples.

The format is https://prometheus.io/docs/instrumenting/exposition_formats/. A sample without a figure is left out and
never zero, and so is a family without samples.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from llmgw.core.meters import Histogram

Labels = dict[str, str]
Sample = tuple[Labels, float | None]


class Page:
    """Families in the order in which they were added. A name is added once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauges(self, name: str, doc: str, samples: Iterable[Sample]) -> None:
        """Figures that go up and down."""
        self._family(name, "gauge", doc, [_line(name, labels, value) for labels, value in samples if value is not None])

    def counters(self, name: str, doc: str, samples: Iterable[Sample]) -> None:
        """Counts that only grow; `name` ends in `_total`."""
        lines = [_line(name, labels, value) for labels, value in samples if value is not None]
        self._family(name, "counter", doc, lines)

    def histograms(
        self, name: str, doc: str, bounds: Sequence[float], samples: Iterable[tuple[Labels, Histogram]]
    ) -> None:
        """Histograms of the classes that end at `bounds`; one that counted nothing is left out."""
        lines: list[str] = []
        ends = [*map(figure, bounds), "+Inf"]
        for labels, histogram in samples:
            if not any(histogram.counts):
                continue
            # Each bucket holds those below it.
            totals = list(accumulate(histogram.counts))
            lines += [
                _line(f"{name}_bucket", {**labels, "le": end}, total) for end, total in zip(ends, totals, strict=True)
            ]
            lines += [_line(f"{name}_sum", labels, histogram.sum), _line(f"{name}_count", labels, totals[-1])]
        self._family(name, "histogram", doc, lines)

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"

    def _family(self, name: str, kind: str, doc: str, lines: Sequence[str]) -> None:
        if lines:
            self._lines += [f"# HELP {name} {_escape_help(doc)}", f"# TYPE {name} {kind}", *lines]


def figure(value: float) -> str:
    """A figure as Prometheus writes it, the shortest that reads back as the same."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")


def _line(name: str, labels: Labels, value: float) -> str:
    if not labels:
        return f"{name} {figure(value)}"
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {figure(value)}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
