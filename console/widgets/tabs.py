"""The second line: the views there are, each with its digit."""

from textual import events
from textual.message import Message
from textual.strip import Strip

from console.screens.registry import TABS, ViewSpec
from console.text import width
from console.widgets.paint import LineWidget, Span

HERE = " {digit} {title} "
"""The tab one is at, which is set off by its ground."""


class Tabs(LineWidget):
    """One line of tabs; they close up, then keep their digits alone, where there is no room: no word is cut."""

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self) -> None:
        super().__init__(id="tabs")
        self._here = ""
        self._crumb = ""
        self._tabs = TABS

    def set_tabs(self, tabs: tuple[ViewSpec, ...]) -> None:
        """Show these tabs and no other."""
        if tabs != self._tabs:
            self._tabs = tabs
            self.refresh()

    def set_here(self, name: str, crumb: str) -> None:
        """Mark a tab; `crumb` names the page opened from it."""
        if (name, crumb) != (self._here, self._crumb):
            self._here, self._crumb = name, crumb
            self.refresh()

    def _labels(self) -> list[tuple[str, str]]:
        """Whole words as long as there is room for all of them beside the page's name; else digits."""
        room = self.size.width - (width(self._crumb) + 2 if self._crumb else 0)
        for form in (HERE, " {digit}{title}"):
            labels = self._as(form)
            if sum(width(label) for _, label in labels) <= room:
                return labels
        return self._as(" {digit}")

    def _as(self, form: str) -> list[tuple[str, str]]:
        return [
            (view.name, (HERE if view.name == self._here else form).format(digit=view.digit, title=view.title))
            for view in self._tabs
        ]

    def render_line(self, y: int) -> Strip:
        """The line."""
        spans: list[Span] = []
        for name, label in self._labels():
            if name == self._here:
                spans.append((label, "tab"))
            else:
                spans += [(label[:2], "key"), (label[2:], "dim")]
        return self.pair(spans, [(f" {self._crumb} ", "accent")] if self._crumb else [], self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Go to the tab under the mouse."""
        left = 0
        for name, label in self._labels():
            if left <= event.x < left + width(label):
                self.post_message(self.Chosen(name))
                return
            left += width(label)
