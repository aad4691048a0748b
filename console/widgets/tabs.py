"""The second line: the views there are, each with its digit."""

from textual import events
from textual.message import Message
from textual.strip import Strip

from console.screens.registry import TABS, ViewSpec
from console.text import width
from console.widgets.paint import LineWidget, Span


class Tabs(LineWidget):
    """One line of tabs; titles shorten, then go, where there is no room."""

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
        full = [(view.name, f" {view.digit} {view.title} ") for view in self._tabs]
        if sum(width(label) for _, label in full) <= self.size.width:
            return full
        short = [(view.name, f" {view.digit} {view.title[:4]} ") for view in self._tabs]
        if sum(width(label) for _, label in short) <= self.size.width:
            return short
        return [
            (view.name, f" {view.digit} {view.title} " if view.name == self._here else f" {view.digit}")
            for view in self._tabs
        ]

    def render_line(self, y: int) -> Strip:
        """The line."""
        spans: list[Span] = []
        for name, label in self._labels():
            if name == self._here:
                spans.append((label, "tab"))
            else:
                digit = label[: label.index(label.strip()[0]) + 1]
                spans += [(digit, "key"), (label[len(digit) :], "dim")]
        return self.pair(spans, [(f" {self._crumb} ", "accent")] if self._crumb else [], self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Go to the tab under the mouse."""
        left = 0
        for name, label in self._labels():
            if left <= event.x < left + width(label):
                self.post_message(self.Chosen(name))
                return
            left += width(label)
