"""`ctl top`: models, nodes and cards by what they do, drawn anew on a terminal and printed once elsewhere."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TextIO

from llmgw.api.client import AdminClient
from llmgw.api.problems import Unreachable
from llmgw.api.watch import Message, Subscription
from llmgw.cli.card_lines import HEADERS, cells, memory, percent
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import size
from llmgw.cli.output import GAP, MIN_COLUMN, table_lines
from llmgw.cli.top_rows import TOPICS, Feed, ModelLine, NodeLine, Top, top_of
from llmgw.core.text import clip, display_width, safe

INTERVAL_MS = 2000
"""Figures come every 5 s or 10 s: what is drawn more often says nothing new."""
LEAST_ROWS = 3
"""Lines each table has at least, its heading included, however low the terminal is."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's second screen without a cursor, and back: what was on the first one stays."""
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
MODEL_HEADERS = (
    "MODEL", "STATE", "READY", "REQ/S", "TOKENS/S", "GPUS", "IDLE", "PER GPU", "WORK", "BUSY", "LOAD", "SM", "MEMORY",
    "POWER", "TOKENS/WH",
)  # fmt: skip
DROPPED_FIRST = (
    "NAME", "SM", "LOAD", "STATE", "CLASS", "GPU MEMORY", "MEMORY", "BUSY", "READY", "IDLE", "TEMP", "CPU", "TOKENS/WH",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first one first."""
NODE_HEADERS = (
    "NODE", "STATE", "CPU", "LOAD", "RAM", "GPUS", "HELD", "IDLE", "WORK", "GPU MEMORY", "POWER", "PROBLEMS",
)  # fmt: skip


def top(ctx: Context) -> None:
    """Once, or until interrupted."""
    terminal = None if ctx.out.json or ctx.args.once else ctx.out.terminal
    feed = Feed()
    messages = ctx.client.watch(Subscription(topics=TOPICS, interval_ms=INTERVAL_MS))
    with contextlib.closing(messages):
        if terminal is None:
            _once(ctx, feed, messages)
            return
        with _second_screen(terminal), contextlib.suppress(KeyboardInterrupt):
            for message in messages:
                feed.take(message)
                _draw(terminal, top_of(feed, ctx.args.by), ctx.args.by, ctx.client)


def _once(ctx: Context, feed: Feed, messages: Iterator[Message]) -> None:
    first = next(messages, None)
    if first is None:
        raise Unreachable(f"{ctx.client.target} ended the feed before it said anything")
    feed.take(first)
    found = top_of(feed, ctx.args.by)
    if ctx.out.json:
        ctx.out.document(found)
        return
    columns = shutil.get_terminal_size().columns if ctx.out.terminal else None
    for headers, rows, empty in (
        (MODEL_HEADERS, [_model(line) for line in found.models], "no model is in the catalog"),
        (NODE_HEADERS, [_node(line) for line in found.nodes], "no node has joined"),
        (HEADERS, [cells(line) for line in found.cards], "no node has a GPU"),
    ):
        shown = narrowed(headers, rows, columns) if columns and rows else (headers, rows)
        ctx.out.table(*shown, empty=empty, apart=headers is not MODEL_HEADERS)


@contextlib.contextmanager
def _second_screen(terminal: TextIO) -> Iterator[None]:
    terminal.write(_ENTER)
    try:
        yield
    finally:
        terminal.write(_LEAVE)
        terminal.flush()


def _draw(terminal: TextIO, found: Top, order: str, client: AdminClient) -> None:
    columns, rows = shutil.get_terminal_size()
    lines = screen(found, order, f"{client.target}", columns, rows)
    terminal.write(_HOME + "\n".join(line + _LINE_END for line in lines) + _REST)
    terminal.flush()


def screen(found: Top, order: str, where: str, columns: int, rows: int) -> list[str]:
    """What fits on a terminal of that size: the head of each list, and under it how many more there are."""
    at = datetime.fromtimestamp(found.at, UTC).strftime("%H:%M:%S")
    lines = [f"llmgw top  {at} UTC  most {order} first  ctrl+c ends  {where}"]
    tables: list[tuple[Sequence[str], list[list[str]], str]] = [
        (MODEL_HEADERS, [_model(line) for line in found.models], "models"),
        (NODE_HEADERS, [_node(line) for line in found.nodes], "nodes"),
        (HEADERS, [cells(line) for line in found.cards], "cards"),
    ]
    tables = [table for table in tables if table[1]]
    rooms = shares([len(every) + 2 for _, every, _ in tables], rows - len(lines) - 1)
    for (headers, every, noun), room in zip(tables, rooms, strict=True):
        shown = every if len(every) + 2 <= room else every[: max(0, room - 3)]
        lines += ["", *table_lines(*narrowed(headers, shown, columns), columns)]
        if len(shown) < len(every):
            lines.append(f"and {len(every) - len(shown):,} more {noun}")
    return [clip(safe(line), columns) for line in lines[: max(1, rows - 1)]]


def narrowed(
    headers: Sequence[str], rows: Sequence[Sequence[str]], columns: int
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The columns for which there is room, those of DROPPED_FIRST leaving in their order."""
    kept = list(range(len(headers)))
    least = [
        min(MIN_COLUMN, max([len(header), *(display_width(safe(row[place])) for row in rows)]))
        for place, header in enumerate(headers)
    ]
    for name in DROPPED_FIRST:
        if sum(least[place] for place in kept) + len(GAP) * (len(kept) - 1) <= columns:
            break
        kept = [place for place in kept if headers[place] != name]
    return [headers[place] for place in kept], [[row[place] for place in kept] for row in rows]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """`room` lines shared out, none getting under LEAST_ROWS: who wants less than an even part leaves it to others."""
    given = [0] * len(wanted)
    left = room
    for place, want in sorted(enumerate(wanted), key=lambda each: each[1]):
        others = sum(1 for value in given if not value)
        given[place] = max(LEAST_ROWS, min(want, left // others))
        left -= given[place]
    return given


def _model(line: ModelLine) -> list[str]:
    return [
        line.model,
        line.state,
        f"{line.ready}/{line.wanted}",
        f"{line.requests_per_s:.1f}",
        f"{line.tokens_per_s:.0f}",
        str(line.gpus),
        str(line.gpus_idle or "-"),
        _whole(line.tokens_per_gpu),
        percent(line.work_percent),
        percent(line.busy_percent),
        percent(line.power_load_percent),
        percent(line.sm_active_percent),
        size(line.memory_bytes or None),
        _watts(line.power_w, line.power_gpus, line.gpus),
        _whole(line.tokens_per_wh),
    ]


def _node(line: NodeLine) -> list[str]:
    return [
        line.node,
        line.state,
        percent(line.cpu_percent),
        "-" if line.load_1m is None else f"{line.load_1m:.1f}",
        memory(line.memory_used_bytes, line.memory_total_bytes),
        str(line.gpus or "-"),
        str(line.gpus_held or "-"),
        str(line.gpus_idle or "-"),
        percent(line.work_percent),
        size(line.gpu_memory_bytes),
        _watts(line.power_w, line.power_gpus, line.gpus_whole),
        "; ".join(line.problems),
    ]


def _watts(value: float | None, cards: int, of: int) -> str:
    """`4,120 W`; `4,120 W (6/8)` where only so many of the cards report it."""
    if value is None:
        return "-"
    return f"{value:,.0f} W" + (f" ({cards}/{of})" if cards < of else "")


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


HANDLERS: dict[tuple[str, ...], Handler] = {("top",): top}
