"""Limits and budgets as an operator reads them: `60 rpm · 100k tpm · 4 at once`, a bar, and figures beside it."""

from collections.abc import Sequence

from console.figures import count, money
from console.signs import signs
from console.state.scopes import GOOD, NEAR, NEARLY, REVOKED, SHUT, SPENT, Entry, Purse
from console.widgets.paint import Span
from llmgw.core.limits import Limits, Period
from llmgw.core.prices import Prices

BAR_COLUMNS = 6
LIMIT_WORDS = {"rpm": "rpm", "tpm": "tpm", "parallel": "at once"}
"""Limit → what stands behind its figure."""
THIS = {Period.DAY: "today", Period.MONTH: "this month"}
A = {Period.DAY: "a day", Period.MONTH: "a month"}
_TONES = {GOOD: "good", NEARLY: "warn", SHUT: "warn", SPENT: "bad", REVOKED: "dim"}


def limits_words(limits: Limits) -> str:
    """`60 rpm · 100k tpm · 4 at once`; empty without limits."""
    given = [
        f"{count(value)} {words}" for name, words in LIMIT_WORDS.items() if (value := getattr(limits, name)) is not None
    ]
    return f" {signs().dot} ".join(given)


def purse_tone(purse: Purse) -> str:
    """How much somebody should look at it."""
    return "bad" if purse.share >= 1 else "warn" if purse.share >= NEAR else "info"


def bar_spans(purse: Purse, columns: int = BAR_COLUMNS) -> list[Span]:
    """A bar and its share: `███░░░  52%`. What is not all spent is never shown as 100%."""
    share = max(0.0, purse.share)
    filled = min(columns, max(round(share * columns), 1 if purse.spent_micros > 0 else 0))
    filled = min(filled, columns - 1) if share < 1 else filled
    shown = min(999, round(100 * share)) if share >= 1 else min(99, round(100 * share))
    tone = purse_tone(purse)
    empty = (signs().empty * (columns - filled), "dim")
    return [(signs().full * filled, tone), empty, (f" {shown:>3}%", tone if tone != "info" else "")]


def purse_short(purse: Purse) -> str:
    """`12.40 of 50.00/month`, for a column."""
    return f"{money(purse.spent_micros)} of {money(purse.budget.amount_micros)}/{purse.budget.period}"


def purse_words(purse: Purse) -> str:
    """`12.40 of 50.00 this month`."""
    return f"{money(purse.spent_micros)} of {money(purse.budget.amount_micros)} {THIS[purse.budget.period]}"


def purses_spans(found: Sequence[Purse]) -> list[Span]:
    """Every budget in words, with its share."""
    spans: list[Span] = []
    for purse in found:
        spans += [(", ", "dim")] if spans else []
        spans += [(purse_words(purse), ""), (f" ({round(100 * purse.share)}%)", purse_tone(purse))]
    return spans


def standing_spans(entry: Entry) -> list[Span]:
    """A mark and a word: `✗ team spent`."""
    standing, whose = entry.standing
    tone = _TONES[standing]
    marks = {"good": signs().live, "warn": signs().warning, "bad": signs().broken, "dim": signs().stopped}
    return [(f"{marks[tone]} ", tone), (f"{whose} {standing}".strip(), tone)]


def prices_words(prices: Prices | None) -> str:
    """`0.20 / 0.80` a million tokens read and written; empty without prices."""
    if prices is None:
        return ""
    return f"{_price(prices.input)} / {_price(prices.output)}"


def _price(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3g}"
