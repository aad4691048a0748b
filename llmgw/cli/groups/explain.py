"""How `ctl explain` shows a placement: the sentence, then every node and card with the rule and the missing figure."""

from llmgw.api.types import Explanation
from llmgw.cli.format import size
from llmgw.cli.output import Output


def explain_table(out: Output, answer: Explanation) -> None:
    """The verdicts, a line a node and profile, its cards under it."""
    out.facts(
        [
            ("model", answer.model + (" (dry run)" if answer.dry_run else "")),
            ("placed", " ".join(answer.placed) or "nowhere"),
            ("next", answer.would_place or "nowhere"),
            (
                "needs",
                f"{_needs(answer)}: {answer.need_detail}".removesuffix(": ") if answer.need_bytes else "",
            ),
            ("because", answer.message),
        ]
    )
    rows: list[list[str]] = []
    for node in answer.verdicts:
        rows.append(
            [node.node, node.profile, _fits(node.fits), node.rule or "-", _missing(node.missing_bytes), node.message]
        )
        for card in node.cards:
            name = f"  card {card.index} {card.name}"
            rows.append([name, "", _fits(card.fits), card.rule or "-", _missing(card.missing_bytes), card.message])
    out.facts([("could hold" if s.nodes else "could not", s.message) for s in answer.suggestions])
    out.table(
        ["NODE", "PROFILE", "FITS", "RULE", "MISSING", "MESSAGE"], rows, empty="there is no node to look at", apart=True
    )


def _needs(answer: Explanation) -> str:
    beside = f" on cards and {size(answer.need_host_bytes)} of memory beside them" if answer.need_host_bytes else ""
    return size(answer.need_bytes) + beside


def _fits(fits: bool) -> str:
    return "yes" if fits else "no"


def _missing(count: int) -> str:
    return size(count) if count else "-"
