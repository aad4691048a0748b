"""A page of text: the title says what it is about, `/` searches, `n` and `N` go on, `w` wraps."""

from typing import ClassVar

from textual.app import ComposeResult

from console.commands import Command
from console.figures import plural
from console.places import Place
from console.screens.view import View, title
from console.widgets.lines import Lines
from console.widgets.titles import set_title


class TextPage(View):
    """Lines about one thing."""

    NOUN: ClassVar[str] = "text"
    FOLLOW: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.lines = Lines(follow=self.FOLLOW)

    def compose(self) -> ComposeResult:
        self.lines.add_class("panel")
        yield self.lines

    def commands(self) -> list[Command]:
        """Reading."""
        return [
            Command(id="wrap", label="wrap", key="w", group=self.NOUN, footer=40, run=self.lines.toggle_wrap),
            *self._search_commands(),
        ]

    def _search_commands(self) -> list[Command]:
        if not self.lines.search:
            return []
        return [
            Command(
                id="next", label="next", key="n", group=self.NOUN, footer=85, run=lambda: self.lines.action_find(1)
            ),
            Command(
                id="previous",
                label="before",
                key="N",
                group=self.NOUN,
                footer=84,
                run=lambda: self.lines.action_find(-1),
            ),
        ]

    def focus_keys(self) -> None:
        """The text has the keys."""
        self.give_keys(self.lines)

    def filter_text(self) -> str:
        """What is searched for."""
        return self.lines.search

    def set_filter(self, text: str) -> bool:
        """Search."""
        self.lines.set_search(text)
        return True

    def escape(self) -> bool:
        """The search goes first."""
        return bool(self.lines.search) and self.set_filter("")

    def copy_text(self) -> str:
        """All of it."""
        return self.lines.text()

    def on_lines_changed(self) -> None:
        """The title says how it is read."""
        self.say_title()
        self.desk.refresh_frame()

    def title_facts(self) -> list[tuple[str, str]]:
        """Facts for the title."""
        return []

    def say_title(self) -> None:
        """What it is about."""
        facts = [(self.place.key, "bold"), (search_words(self.lines), "bold $warning"), *self.title_facts()]
        set_title(self.lines, title(self.NOUN, *facts))


def search_words(lines: Lines) -> str:
    """What is searched for, and how often it is there: `/error 3 of 12 lines`."""
    if not lines.search:
        return ""
    if not lines.matches:
        return f"/{lines.search} in no line"
    return f"/{lines.search} {f'{lines.match:,} of' if lines.match else 'in'} {plural(lines.matches, 'line')}"
