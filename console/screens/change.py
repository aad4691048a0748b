"""One audited change: who, when, what, and every value before and after, the changed ones first."""

from textual.app import ComposeResult
from textual.containers import Vertical

from console.commands import Command
from console.figures import age, moment, plural
from console.places import Place, Subject
from console.screens.changes import Value, arrow, change_of
from console.screens.view import View, title, waiting_lines
from console.signs import signs
from console.state.diff import Diff
from console.text import fit, plain, width
from console.widgets.columns import Seen
from console.widgets.facts import Fact, fact_lines
from console.widgets.lines import Line, Lines
from console.widgets.paint import Span
from console.widgets.text_block import TextBlock
from llmgw.api.watch import AuditRow

MOST_PATH_COLUMNS = 36


class ChangePage(View):
    """An entry of the audit."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._facts = TextBlock()
        self.lines = Lines(wrap=True)
        self._frame = Vertical(self.lines, classes="panel page-list")
        self._shown: AuditRow | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="facts"):
            yield self._facts
        yield self._frame

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """An entry never changes; only its age does."""
        entry = seen.state.audit.get(self.place.key) or self._shown
        if entry is None:
            gone: list[Line] = [[("this entry is older than those the feed brings; ", ""), ("ctl audit", "strong")]]
            self._facts.set_lines(gone if seen.state.heard else waiting_lines(self.desk))
            return
        self._facts.set_lines(fact_lines(_facts(entry, seen), max(20, self.size.width - 2)))
        if entry is not self._shown:
            self._shown = entry
            self._show_values(entry)

    def tick(self, seen: Seen) -> None:
        """Its age."""
        self.update(seen, Diff())

    def on_resize(self) -> None:
        """Facts in another number of columns."""
        self.update(self.desk.seen(), None)

    def _show_values(self, entry: AuditRow) -> None:
        change = change_of(entry)
        changed = change.changed
        same = [value for value in change.values if not value.changed]
        columns = min(MOST_PATH_COLUMNS, max((width(plain(value.path)) for value in change.values), default=0))
        lines: list[Line] = [_line(value, columns) for value in changed]
        if same:
            lines += [[], [(f"as before: {plural(len(same), 'value')}", "dim")]]
            lines += [_line(value, columns) for value in same]
        if change.cut:
            lines += [[], [(f"and more than {len(change.values):,} values; `ctl audit` has them", "warn")]]
        self.lines.set_lines(lines or [[("nothing but that it happened was noted", "dim")]])
        self._frame.border_title = title(f"before {arrow()} after", (f"{len(changed)} changed", "bold"))

    def subjects(self) -> tuple[Subject, ...]:
        """An entry is nothing that anything could be done to."""
        return ()

    def commands(self) -> list[Command]:
        """Searching."""
        return []

    def focus_keys(self) -> None:
        """The lines have the keys."""
        self.lines.focus(scroll_visible=False)

    def filter_text(self) -> str:
        """What is searched for."""
        return self.lines.search

    def set_filter(self, text: str) -> bool:
        """Search."""
        self.lines.set_search(text)
        return True

    def escape(self) -> bool:
        """Drop the search."""
        return bool(self.lines.search) and self.set_filter("")

    def copy_text(self) -> str:
        """All values."""
        return self.lines.text()


def _facts(entry: AuditRow, seen: Seen) -> list[Fact]:
    return [
        ("who", (entry.actor, "strong")),
        ("did", (entry.action, "accent")),
        ("to", (entry.target, "strong")),
        ("at", [(moment(entry.at), ""), (f"  {age(seen.now - entry.at)} ago", "dim")]),
        ("number", (str(entry.id), "dim")),
    ]


def _line(value: Value, columns: int) -> Line:
    name = fit(plain(value.path), columns) if columns else ""
    if not value.changed:
        return [(f"  {name}  ", "dim"), (value.after or "", "dim")]
    if value.before is None:
        return [("+ ", "good"), (f"{name}  ", ""), *_side(value.after, "good")]
    if value.after is None:
        return [("- ", "bad"), (f"{name}  ", ""), *_side(value.before, "bad")]
    middle: Span = (f" {arrow()} ", "key")
    return [("~ ", "warn"), (f"{name}  ", ""), *_side(value.before, "dim"), middle, *_side(value.after, "strong")]


def _side(text: str | None, tone: str) -> list[Span]:
    return [(text or "", tone)] if text else [(signs().dash, "dim")]
