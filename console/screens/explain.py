"""Why a model is where it is, or why it is not: node by node, card by card, with the bytes that are missing."""

import asyncio
from itertools import groupby
from typing import ClassVar

from console.commands import Command
from console.figures import size
from console.screens.fit import beside
from console.screens.text_page import TextPage
from console.signs import signs
from console.state.diff import Diff
from console.text import fit, plain, width
from console.widgets.columns import Seen
from console.widgets.lines import Line
from console.widgets.paint import Span
from llmgw.api.problems import ClientError
from llmgw.api.types import Explanation
from llmgw.core.fit import UNKNOWN_WEIGHTS
from llmgw.core.verdicts import CardVerdict, NodeVerdict

LABEL_COLUMNS = 13
NAME_COLUMNS = 18
CARD_COLUMNS = 40
"""A card's name at most."""
SETTLE_S = 1.0
"""Nodes and replicas change in bursts; one question is asked after the burst."""


class ExplainPage(TextPage):
    """The answer to `explain`, asked again when the model's replicas or the nodes change."""

    NOUN: ClassVar[str] = "explain"

    def show(self, seen: Seen) -> None:
        """Ask."""
        self.say_title()
        if not self.lines.count:
            self.lines.set_lines([[(f"asking{signs().ellipsis}", "dim")]])
        self._ask(0.0)

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """Ask again when the answer may be another."""
        if diff is not None and (diff.touches("nodes") or self.place.key in diff.keys("models")):
            self._ask(SETTLE_S)

    def commands(self) -> list[Command]:
        """Asking again."""
        again = Command(id="again", label="ask again", key="a", group=self.NOUN, footer=80, run=lambda: self._ask(0.0))
        return [again, *super().commands()]

    def _ask(self, wait_s: float) -> None:
        self.run_worker(self._load(wait_s), exclusive=True, group="explain")

    async def _load(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            answer = await self.desk.admin.call(lambda api: api.explain(self.place.key))
        except ClientError as error:
            self.lines.set_lines([[(error.message, "bad")]])
        else:
            self.lines.set_lines(explanation_lines(answer))


def explanation_lines(answer: Explanation) -> list[Line]:
    """The whole answer: the sentence, what is needed, and every verdict."""
    lines: list[Line] = [[(answer.message, "strong")], []]
    if answer.placed:
        lines.append([_name("on now"), (", ".join(answer.placed), "good")])
    lines.append([_name("next goes to"), (answer.would_place or "nowhere", "good" if answer.would_place else "bad")])
    if answer.need_bytes:
        least = "at least " if answer.need_detail.startswith(UNKNOWN_WEIGHTS) else ""
        needs: Line = [_name("needs"), (least, "dim"), (size(answer.need_bytes), "strong")]
        lines.append([*needs, *beside(answer), (f"  {answer.need_detail}", "dim")])
    lines.append([])
    for verdict in sorted(answer.verdicts, key=_nearest_first):
        lines += _verdict_lines(verdict)
    if not answer.verdicts:
        lines.append([("no node was looked at", "dim")])
    return lines


def _name(text: str) -> Span:
    return (fit(text, LABEL_COLUMNS), "dim")


def _nearest_first(verdict: NodeVerdict) -> tuple[bool, bool, int, str]:
    # A node that is refused for another reason than room is not near, though no byte is missing there.
    return (not verdict.fits, not verdict.missing_bytes, verdict.missing_bytes, verdict.node)


def _verdict_lines(verdict: NodeVerdict) -> list[Line]:
    mark = (signs().good, "good") if verdict.fits else (signs().broken, "bad")
    head: Line = [mark, (f" {fit(plain(verdict.node), NAME_COLUMNS)}", "strong"), (f" {verdict.profile}  ", "dim")]
    head.append((verdict.message, "" if verdict.fits else "warn"))
    if verdict.missing_bytes and size(verdict.missing_bytes) not in verdict.message:
        head.append((f"  {size(verdict.missing_bytes)} missing", "bad"))
    columns = min(CARD_COLUMNS, max((width(plain(card.name)) for card in verdict.cards), default=0))
    return [head, *(_cards_line(list(alike), columns) for _, alike in groupby(verdict.cards, key=_told_of))]


def _told_of(card: CardVerdict) -> tuple[bool, str, str, str, int]:
    """What a line says of a card besides its number: neighbours of whom the same is to be said share one."""
    return (card.fits, card.name, card.rule, card.message, card.missing_bytes)


def _cards_line(cards: list[CardVerdict], columns: int) -> Line:
    card, last = cards[0], cards[-1]
    mark = (signs().good, "good") if card.fits else (signs().broken, "bad")
    which = f" card {card.index}" if last is card else f" cards {card.index}{signs().dash}{last.index}"
    line: Line = [("    ", ""), mark, (f"{which:<12}", ""), (f" {fit(plain(card.name), columns)} ", "dim")]
    line.append((card.message or ("fits" if card.fits else card.rule), "dim" if card.fits else ""))
    if card.missing_bytes and size(card.missing_bytes) not in card.message:
        line.append((f"  {size(card.missing_bytes)} missing", "bad"))
    return line
