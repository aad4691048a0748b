"""Where a model would go: what it needs in bytes, and for every node whether it has that, the best places first."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from console.figures import plural, size
from console.signs import signs
from console.text import fit, plain, width
from console.widgets.lines import Line, Lines
from console.widgets.text_block import TextBlock
from llmgw.api.types import Explanation, NodeVerdict
from llmgw.core.fit import UNKNOWN_WEIGHTS

NODE_COLUMNS = 20
MISSING_COLUMNS = 16
_NEARNESS = ("nodes", "memory", "cards", "shape", "engine", "cordoned", "link", "class")
"""Rules that refuse, from what an operator is closest to mending to what is out of reach."""
_IN_SHORT = {
    "nodes": "too few others",
    "cards": "cards are taken",
    "class": "other cards",
    "shape": "other tp",
    "engine": "no engine",
    "cordoned": "cordoned",
    "link": "not heard",
}
"""Rule → what stands in its column where no bytes are missing."""


MOST_SUGGESTIONS = 2
"""The rest is in `ctl explain`."""


class Fit(Vertical):
    """A headline, and a line a node."""

    def __init__(self) -> None:
        super().__init__(classes="fit")
        self.headline = TextBlock(wrapped=True)
        self.nodes = Lines(wrap=False)

    def compose(self) -> ComposeResult:
        yield self.headline
        yield self.nodes

    def say(self, line: Line, more: list[Line] | None = None) -> None:
        """Something else than an answer."""
        self.headline.set_lines([line])
        self.nodes.set_lines(more or [])

    def show(self, explanation: Explanation) -> None:
        """An answer."""
        self.headline.set_lines([headline(explanation)])
        ordered = sorted(explanation.verdicts, key=lambda verdict: _rank(verdict, explanation.would_place))
        offers = suggestion_lines(explanation) if explanation.would_place is None else []
        self.nodes.set_lines([*offers, *verdict_lines(ordered, explanation.would_place)])


def headline(explanation: Explanation) -> Line:
    """How many nodes have room, and for what."""
    nodes = {verdict.node for verdict in explanation.verdicts}
    if not nodes:
        return [("no node has joined yet; ", "warn"), ("4", "key"), (" shows how one does", "dim")]
    able = {verdict.node for verdict in explanation.verdicts if verdict.fits or verdict.rule == "nodes"}
    tone = "good" if len(able) >= explanation.spans else "bad"
    of = f"{len(able):,} of {plural(len(nodes), 'node')}"
    parts = f"{of} can take a part, {explanation.spans} are needed" if explanation.spans > 1 else f"{of} can take it"
    line: Line = [(parts, tone)]
    if explanation.need_bytes:
        least = "at least " if explanation.need_detail.startswith(UNKNOWN_WEIGHTS) else ""
        line += [(f" {signs().dot} it needs {least}", "dim"), (size(explanation.need_bytes), "strong")]
        line += beside(explanation)
        line.append((f": {explanation.need_detail}" if explanation.need_detail else "", "dim"))
    return line


def beside(explanation: Explanation) -> Line:
    """What it needs of a node's memory besides, where it needs any."""
    if not explanation.need_host_bytes:
        return []
    return [(" on cards and ", "dim"), (size(explanation.need_host_bytes), "strong"), (" of memory beside them", "dim")]


def suggestion_lines(explanation: Explanation) -> list[Line]:
    """What would fit where the plan does not, the fewest cards first."""
    able = [suggestion for suggestion in explanation.suggestions if suggestion.nodes][:MOST_SUGGESTIONS]
    return [[("it would fit: ", "info"), (suggestion.message, "")] for suggestion in able]


def verdict_lines(verdicts: Sequence[NodeVerdict], chosen: str | None) -> list[Line]:
    """A line a node, in columns no wider than they must be."""
    names = min(NODE_COLUMNS, max((width(plain(verdict.node)) for verdict in verdicts), default=0))
    shorts = min(MISSING_COLUMNS, max((width(_in_short(verdict, chosen)) for verdict in verdicts), default=0))
    return [_verdict_line(verdict, chosen, names, shorts) for verdict in verdicts]


def _verdict_line(verdict: NodeVerdict, chosen: str | None, names: int, shorts: int) -> Line:
    """One node: mark, name, what is missing, and the server's sentence."""
    mark, tone = (signs().good, "good") if verdict.fits else (signs().broken, "bad")
    return [
        (f"{mark} ", tone),
        (fit(verdict.node, names), "strong" if verdict.fits and _goes_to(verdict, chosen) else ""),
        ("  ", ""),
        (fit(_in_short(verdict, chosen), shorts), tone),
        (f"  {verdict.message.removeprefix('fits: ')}", "dim"),
    ]


def _in_short(verdict: NodeVerdict, chosen: str | None) -> str:
    if verdict.fits:
        return "goes here" if _goes_to(verdict, chosen) else "has room"
    return f"{size(verdict.missing_bytes)} missing" if verdict.missing_bytes else _IN_SHORT.get(verdict.rule, "no")


def _goes_to(verdict: NodeVerdict, chosen: str | None) -> bool:
    """Whether the node is the chosen one, or one of them: a replica that spans several goes to `a and b`."""
    return verdict.node in (chosen or "").split(" and ")


def _rank(verdict: NodeVerdict, chosen: str | None) -> tuple[bool, bool, int, int, str]:
    near = _NEARNESS.index(verdict.rule) if verdict.rule in _NEARNESS else len(_NEARNESS)
    return (not verdict.fits, not _goes_to(verdict, chosen), near, verdict.missing_bytes, verdict.node)
