"""An exchange with a model as lines: the question, what came of it, and the figures."""

from console.figures import count, millis
from console.signs import signs
from console.state.trial import Exchange
from console.widgets.lines import MAX_LINE_CHARS, Line


def exchange_lines(exchange: Exchange) -> list[Line]:
    """A question, its answer, and how it went."""
    lines = [
        [("> " if not number else "  ", "accent"), (text, "strong")] for number, text in _pieces([exchange.question])
    ]
    lines += [[(text, "dim")] for _, text in _pieces(exchange.thinking.lines)]
    lines += [[(text, "")] for _, text in _pieces(exchange.answer.lines)]
    if exchange.problem:
        lines.append([(f"{signs().broken} ", "bad"), (exchange.problem, "bad")])
    if exchange.running:
        return lines
    if exchange.first_at is not None:
        lines.append(figures_line(exchange, exchange.last_at))
    elif exchange.broken_off:
        lines.append([("ended by you before the first token", "warn")])
    return [*lines, []]


def _pieces(lines: list[str]) -> list[tuple[int, str]]:
    """Lines in parts that the widget keeps whole."""
    return list(
        enumerate(
            line[start : start + MAX_LINE_CHARS]
            for line in lines
            for start in range(0, max(1, len(line)), MAX_LINE_CHARS)
        )
    )


def figures_line(exchange: Exchange, now: float) -> Line:
    """First token, speed, tokens and the end, as far as they are known at monotonic `now`."""
    first = exchange.first_token_s
    if first is None:
        return [(f"waiting for the first token, {now - exchange.asked_at:.1f} s", "info")]
    dot = (f" {signs().dot} ", "dim")
    line: Line = [("first token ", "dim"), (millis(first * 1000), "strong")]
    if exchange.tokens_per_s is not None:
        line += [dot, (count(exchange.tokens_per_s), "strong"), (" tokens/s", "dim")]
    ended = exchange.ended
    tokens = f"{ended.input_tokens:,} in, " if ended and ended.input_tokens is not None else ""
    line += [dot, (f"{tokens}{exchange.output_tokens:,} out", "dim")]
    if exchange.broken_off:
        line += [dot, ("ended by you", "warn")]
    elif ended is not None:
        line += [dot, (_ending(ended.reason), "warn" if ended.reason == "length" else "good")]
    return line


def _ending(reason: str) -> str:
    if reason == "length":
        return "length: the longest answer allowed"
    return reason or "ended"
