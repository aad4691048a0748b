"""stdout is data, stderr is narration. Nothing from outside reaches a terminal unchecked, and pipes get plain text."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec

from llmgw.api.problems import Refused
from llmgw.core.text import clip, display_width, safe

GAP = "  "
MIN_COLUMN = 8
"""A column is not clipped below this width."""
_RAW_CONTROLS = re.compile("[\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")


class Output:
    """Where a command's results go. `json` turns tables into documents."""

    def __init__(self, *, json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.json = json
        self._out = _open(sys.stdout) if out is None else out
        self._err = _open(sys.stderr) if err is None else err

    def document(self, value: object) -> None:
        """`value` as indented JSON; signs a terminal would act on are escaped, which JSON reads the same."""
        self._write(_escaped(msgspec.json.format(msgspec.json.encode(value), indent=2)))

    def document_line(self, value: object) -> None:
        """`value` as JSON on one line, for streams."""
        self._write(_escaped(msgspec.json.encode(value)))

    def line(self, text: str) -> None:
        """One line of data."""
        self._write(safe(text))

    def say(self, sentence: str) -> None:
        """One sentence for the person in front."""
        print(safe(sentence), file=self._err, flush=True)

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "", apart: bool = False
    ) -> None:
        """Aligned columns; on a terminal the widest are clipped to its width.

        `empty` is said when there is no row; `apart` puts an empty line before the table when there is one.
        """
        if not rows:
            if empty:
                self.say(empty)
            return
        if apart:
            self._write("")
        self._write("\n".join(table_lines(headers, rows, self._width())))

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """`label  value` lines; those without a value are left out."""
        shown = [(label, value) for label, value in pairs if value]
        width = max((len(label) for label, _ in shown), default=0)
        for label, value in shown:
            self._write(f"{label:<{width}}{GAP}{safe(value)}")

    def gap(self) -> None:
        """An empty line between tables."""
        self._write("")

    @property
    def terminal(self) -> TextIO | None:
        """The terminal that stdout is; none where it is a file or a pipe."""
        return self._out if self._out.isatty() else None

    def _width(self) -> int | None:
        return shutil.get_terminal_size().columns if self._out.isatty() else None

    def _write(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            abandon_stdout()
            raise Refused(f"what was answered cannot be written: {error.strerror}") from error


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """A table's lines, its heading first; where there is a `width`, the widest columns are clipped to it."""
    cells = [[safe(cell) for cell in row] for row in [list(headers), *rows]]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(headers))]
    if width is not None:
        widths = _shrink(widths, width - len(GAP) * (len(widths) - 1))
    return [_row(row, widths) for row in cells]


def _open(stream: TextIO | None) -> TextIO:
    """A standard stream; nowhere in place of one that was closed before this process began (`>&-`)."""
    return open(os.devnull, "w", encoding="utf-8") if stream is None else stream


def _escaped(document: bytes) -> str:
    return _RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", document.decode())


def _shrink(widths: list[int], room: int) -> list[int]:
    """Widths whose sum fits `room`, taken from the widest first; no column below MIN_COLUMN."""
    widths = list(widths)
    while sum(widths) > room and max(widths) > MIN_COLUMN:
        widest = widths.index(max(widths))
        second = max([MIN_COLUMN, *(width for width in widths if width < widths[widest])])
        widths[widest] = max(second, widths[widest] - (sum(widths) - room), MIN_COLUMN)
        if widths.count(widths[widest]) > 1 and sum(widths) > room:
            widths[widest] = max(MIN_COLUMN, widths[widest] - 1)
    return widths


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for cell, width in zip(cells, widths, strict=True):
        clipped = clip(cell, width)
        padded.append(clipped + " " * (width - display_width(clipped)))
    return GAP.join(padded).rstrip()


def tolerate_encoding() -> None:
    """Let stdout and stderr write any text in any locale: what they cannot show becomes `?` or an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """After a broken pipe: the interpreter's own flush at exit must not fail again."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
