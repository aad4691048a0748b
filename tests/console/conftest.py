"""Pictures live in the top-level `snapshots/`, named after their test; the signs of the last console do not stay."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from syrupy.types import SnapshotIndex

from console.app import Console
from console.signs import UNICODE, use_signs
from tests.console.scenes import TABS

SNAPSHOTS = Path(__file__).parents[2] / "snapshots"
DOCS_IMAGES = SNAPSHOTS.parent / "docs" / "images"
DOCUMENTED = {f"{tab}-normal-120x40": tab for tab in (*TABS, "model", "explain", "logs", "try", "key", "usage")} | {
    "dialog-serve-120x40": "serve"
}
"""Picture → image of the documentation that is a copy of it."""
_RECT = re.compile(r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="24.65"/>')


class Rect(NamedTuple):
    """The ground of some cells of a line."""

    fill: str
    x: float
    y: float
    width: float


def compact(svg: str) -> str:
    """An export without its number, the fonts it would fetch and what it says again and again: less than half of it."""
    svg = re.sub(r"\bterminal-\d+-", "", svg)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<clipPath id="line-\d+">.*?</clipPath>\s*', "", svg, flags=re.DOTALL)
    svg = re.sub(r' clip-path="url\(#line-\d+\)"', "", svg)
    svg = svg.replace("Fira Code", "monospace").replace("&#160;", "\u00a0")
    svg = svg.replace(' shape-rendering="crispEdges"', "").replace(
        "<style>", "<style>rect{shape-rendering:crispEdges}", 1
    )
    rects = [Rect(m[1], float(m[2]), float(m[3]), float(m[4])) for m in _RECT.finditer(svg)]
    if rects:
        svg = _lay_ground(svg, rects)
    return re.sub(r">\s*<(?!/text)", ">\n<", svg)


def _lay_ground(svg: str, rects: list[Rect]) -> str:
    """The commonest colour once behind everything, and neighbours of one colour as one."""
    ground = Counter(rect.fill for rect in rects).most_common(1)[0][0]
    joined: list[Rect] = []
    for rect in rects:
        last = joined[-1] if joined else None
        if last and (last.fill, last.y) == (rect.fill, rect.y) and abs(last.x + last.width - rect.x) < 0.05:
            joined[-1] = last._replace(width=last.width + rect.width)
        else:
            joined.append(rect)
    drawn = [f'<rect fill="{ground}" x="0" y="0" width="100%" height="100%"/>']
    drawn += [
        f'<rect fill="{rect.fill}" x="{rect.x:g}" y="{rect.y:g}" width="{rect.width:g}" height="24.65"/>'
        for rect in joined
        if rect.fill != ground
    ]
    first = next(_RECT.finditer(svg)).start()
    return svg[:first] + "\n".join(drawn) + _RECT.sub("", svg[first:])


class Picture(SingleFileSnapshotExtension):
    """An SVG in `snapshots/`, named by what is on it."""

    _write_mode = WriteMode.TEXT
    _file_extension = "svg"

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """A folder a test file."""
        return str(SNAPSHOTS / test_location.basename)

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        """The test's, and the one it gave."""
        return f"{test_location.methodname}-{index}"

    def serialize(self, data: Any, **_: Any) -> str:
        """The text of the picture."""
        return str(data)


@pytest.fixture
def same_picture(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> Callable[[Console, str], bool]:
    """Whether a console looks as it did when the picture of that name was accepted, in the documentation too."""
    pictures = snapshot.use_extension(Picture)
    accept = request.config.getoption("--snapshot-update")

    def compare(console: Console, name: str) -> bool:
        svg = compact(console.export_screenshot(title="llmgw console"))
        same = bool(pictures(name=name) == svg)
        if name in DOCUMENTED:
            path = DOCS_IMAGES / f"{DOCUMENTED[name]}.svg"
            if accept:
                path.write_text(svg)
            same = same and path.read_text() == svg
        return same

    return compare


@pytest.fixture
def same_frame(request: pytest.FixtureRequest) -> Callable[[Console, str], bool]:
    """Whether a console looks as the documentation's image of that name does; `--snapshot-update` takes it anew."""
    accept = request.config.getoption("--snapshot-update")

    def compare(console: Console, name: str) -> bool:
        path = DOCS_IMAGES / f"{name}.svg"
        svg = compact(console.export_screenshot(title="llmgw console"))
        if accept:
            path.write_text(svg)
        return path.exists() and path.read_text() == svg

    return compare


@pytest.fixture
def tour_page() -> str:
    """The documentation's tour."""
    return (DOCS_IMAGES.parent / "tour.md").read_text()


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks read the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def unicode_signs() -> Iterator[None]:
    """A test that drew in ASCII leaves nothing behind."""
    yield
    use_signs(UNICODE)


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands between the console and the terminal, wherever tests run."""
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
