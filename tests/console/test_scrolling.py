"""How far a window scrolls follows its rows, and the screen is laid out anew only when a bar comes or goes."""

from typing import Self

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.scroll_view import ScrollView

from console.widgets.scrolling import fit_rows

pytestmark = pytest.mark.asyncio
ROWS = 10


class Window(ScrollView):
    """A window that notes when it asks for a layout."""

    DEFAULT_CSS = f"Window {{ height: {ROWS}; overflow-x: hidden; }} Window.-auto {{ height: auto; }}"

    def __init__(self) -> None:
        super().__init__()
        self.layouts = 0

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        self.layouts += layout
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


class OneWindow(App[None]):
    """An application that is a window."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window()

    def compose(self) -> ComposeResult:
        yield self.window


async def test_rows_that_come_and_go_behind_a_bar_move_its_thumb_alone() -> None:
    app = OneWindow()
    async with app.run_test(size=(40, 20)) as pilot:
        window = app.window
        fit_rows(window, 100)
        await pilot.pause()
        assert window.show_vertical_scrollbar
        window.scroll_to(y=90, animate=False, force=True)
        window.layouts = 0
        fit_rows(window, 200)
        assert (window.virtual_size.height, window.vertical_scrollbar.window_virtual_size) == (200, 200)
        assert (window.max_scroll_y, window.scroll_y) == (190, 90)
        fit_rows(window, 50)
        assert (window.max_scroll_y, window.scroll_y) == (40, 40), "a window shows no rows that are gone"
        await pilot.pause()
        assert window.layouts == 0
        assert window.scroll_y == 40


async def test_a_bar_that_comes_or_goes_lays_the_window_out() -> None:
    app = OneWindow()
    async with app.run_test(size=(40, 20)) as pilot:
        window = app.window
        for rows, barred in ((ROWS, False), (ROWS + 1, True), (ROWS, False)):
            fit_rows(window, rows)
            await pilot.pause()
            assert window.show_vertical_scrollbar is barred


async def test_a_window_as_high_as_its_rows_grows_with_them() -> None:
    app = OneWindow()
    async with app.run_test(size=(40, 20)) as pilot:
        window = app.window
        window.add_class("-auto")
        await pilot.pause()
        for rows in (3, 7, 5):
            fit_rows(window, rows)
            await pilot.pause()
            assert window.size.height == rows
