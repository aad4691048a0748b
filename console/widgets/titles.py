"""A frame's title costs its own letters. Set through Textual, one digit in a title paints the whole widget anew."""

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

EDGE = 4
"""Columns between a frame's corner and its title's letters, and what the frame draws behind them."""


def set_title(widget: Widget, title: Content, *, low: bool = False) -> None:
    """Show `title` in the upper edge of a widget's frame, or in the lower one; the same one again paints nothing."""
    name = "_border_subtitle" if low else "_border_title"
    lines = title.split("\n")
    shown = lines[0] if lines else Content("")
    before = getattr(widget, name, None)
    # Contents of the same letters are equal, whatever their colours.
    if isinstance(before, Content) and (before.plain, before.spans) == (shown.plain, shown.spans):
        return
    setattr(widget, name, shown)
    size, inside = widget.outer_size, widget.content_offset
    columns = size.width
    if isinstance(before, Content):
        columns = min(columns, max(before.cell_length, shown.cell_length) + 2 * EDGE)
    align = widget.styles.border_subtitle_align if low else widget.styles.border_title_align
    x, y = (size.width - columns if align == "right" else 0), size.height - 1 if low else 0
    if align == "center":
        x, columns = 0, size.width
    # Regions count from the content's corner, which is inside the frame.
    widget.refresh(Region(x - inside.x, y - inside.y, columns, 1))
