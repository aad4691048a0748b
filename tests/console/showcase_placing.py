"""Why a model of the pictures is where it is, or is nowhere."""

from llmgw.api.types import Explanation
from llmgw.core.verdicts import CardVerdict, NodeVerdict
from tests.console.showcase_names import BAD_MODEL, CARDS
from tests.support.fleet_rows import GB, card_uuid


def explanation() -> Explanation:
    """Why `BAD_MODEL` is nowhere."""
    need = 71 * GB

    def cards(node: str, used: int, missing: int) -> tuple[CardVerdict, ...]:
        return tuple(
            CardVerdict(
                uuid=card_uuid(node, index),
                index=index,
                name="NVIDIA H100",
                fits=index >= used,
                rule="memory" if index < used else "",
                missing_bytes=missing if index < used else 0,
                message="" if index >= used else f"needs 71 GB, {71 - missing // GB} GB free",
            )
            for index in range(CARDS)
        )

    return Explanation(
        model=BAD_MODEL,
        dry_run=False,
        message=f"{BAD_MODEL} cannot be placed: 8 cards of one node are needed, and gpu04 comes nearest",
        need_bytes=8 * need,
        need_detail="weights 376 GB + KV 171 GB (16 × 32,768 tokens) + engine 21 GB, over 8 cards",
        verdicts=(
            NodeVerdict(
                node="gpu04",
                profile="main",
                fits=False,
                rule="memory",
                missing_bytes=14_200_000_000,
                message="2 of 8 cards have room",
                cards=cards("gpu04", 6, 14 * GB),
            ),
            NodeVerdict(
                node="gpu01",
                profile="main",
                fits=False,
                rule="memory",
                missing_bytes=61 * GB,
                message="all 8 cards are held by llama-3.3-70b",
            ),
            NodeVerdict(node="gpu07", profile="main", fits=False, rule="class", message="a100-80g is not h100-80g"),
            NodeVerdict(node="gpu11", profile="main", fits=False, rule="cordoned", message="cordoned by token:ops"),
            NodeVerdict(node="gpu12", profile="main", fits=False, rule="link", message="silent for 38 s"),
        ),
    )


def fitting(name: str) -> Explanation:
    """Where a model that is asked about before it is served would go."""
    need = 58 * GB

    def refused(node: str, rule: str, message: str, missing: int = 0) -> NodeVerdict:
        return NodeVerdict(node=node, profile="main", fits=False, rule=rule, missing_bytes=missing, message=message)

    return Explanation(
        model=name,
        dry_run=True,
        would_place="gpu04",
        message=f"{name} goes to gpu04",
        need_bytes=need,
        need_detail="weights 38 GB + KV 18 GB (4 × 32,768 tokens) + engine 2 GB",
        verdicts=(
            NodeVerdict(node="gpu04", profile="main", fits=True, message="fits: 58 GB on card 6"),
            NodeVerdict(node="gpu03", profile="main", fits=True, message="fits: 58 GB on card 6"),
            refused("gpu01", "memory", "all 8 cards are held by llama-3.3-70b", 38 * GB),
            refused("gpu09", "memory", "l40s-48g has 48 GB a card", 10 * GB),
            refused("gpu11", "cordoned", "cordoned by token:ops"),
            refused("gpu12", "link", "silent for 38 s"),
        ),
    )
