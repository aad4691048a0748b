"""How far a window scrolls, told without laying the whole screen out anew."""

from textual.geometry import Size
from textual.scroll_view import ScrollView


def fit_rows(window: ScrollView, rows: int) -> None:
    """Let `window` scroll over `rows` rows.

    Rows come and go with every count of a large fleet. As long as the bar beside them stays, or stays away, nothing on
    the screen moves but its thumb.
    """
    size = Size(window.size.width, rows)
    if size == window.virtual_size:
        return
    barred, height = window.show_vertical_scrollbar, window.styles.height
    if (
        barred != (rows > window.size.height)
        or size.width != window.virtual_size.width
        or height is None
        or height.is_auto
    ):
        window.virtual_size = size
        return
    window.set_reactive(type(window).virtual_size, size)
    if barred:
        window.vertical_scrollbar.window_virtual_size = rows
    if window.scroll_y > window.max_scroll_y:
        window.scroll_to(y=window.max_scroll_y, animate=False, force=True)
