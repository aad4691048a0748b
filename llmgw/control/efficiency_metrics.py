"""What models get from their cards, on the metrics page: the same sums as in the console and `ctl top`.

Tokens are counters of their own (`llmgw_tokens_total`): tokens per watt-hour is a query over both.
"""

from llmgw.api.card_uses import all_uses
from llmgw.api.types import ClusterStatus
from llmgw.control.exposition import Labels, Page
from llmgw.core.card_use import by_model, efficiency


def models(page: Page, status: ClusterStatus) -> None:
    """Cards of each model that holds some: how many, how many of them do nothing, and means over those that report."""
    names = {replica.id: replica.model for replica in status.replicas}
    held = [(names[id_], use) for id_, use in all_uses(status.nodes) if id_ in names]
    idle: dict[str, int] = {}
    idle_w: dict[str, float] = {}
    for model, use in held:
        idle[model] = idle.get(model, 0) + len(use.idle)
        if use.power_known:
            # Of cards that tell nobody what they draw, nobody knows what they draw for nothing.
            idle_w[model] = idle_w.get(model, 0.0) + (use.idle_w or 0.0)
    lines = [efficiency(model, use, 0.0) for model, use in sorted(by_model(held).items())]
    for name, doc, values in (
        ("llmgw_model_gpus", "Cards a model's replicas hold.", [line.cards for line in lines]),
        ("llmgw_model_gpus_idle", "Of those, cards that do nothing.", [idle[line.model] for line in lines]),
        ("llmgw_model_busy_percent", "Share of time any kernel ran on its cards.", [line.busy for line in lines]),
        ("llmgw_model_work_percent", "How much of its cards works.", [line.work for line in lines]),
        ("llmgw_model_power_load_percent", "Power against its limit.", [line.load for line in lines]),
        ("llmgw_model_sm_active_percent", "Multiprocessors at work.", [line.sm for line in lines]),
        ("llmgw_model_power_watts", "Power draw of its cards.", [line.draw_w for line in lines]),
        ("llmgw_model_power_gpus", "Cards whose power draw that is.", [line.draw_cards for line in lines]),
        (
            "llmgw_model_idle_power_watts",
            "Of that, of cards that do nothing.",
            [idle_w.get(line.model) for line in lines],
        ),
    ):
        page.gauges(name, doc, [({"model": line.model}, value) for line, value in zip(lines, values, strict=True)])


def idle_cards(page: Page, status: ClusterStatus) -> None:
    """Cards that are held and do nothing, with whoever holds them."""
    names = {replica.id: replica.model for replica in status.replicas}
    samples: list[tuple[Labels, float | None]] = [
        (
            {
                "node": node.name,
                "gpu": str(card.index),
                "class": card.gpu_class,
                "model": names.get(card.replica, ""),
                "replica": card.replica,
            },
            card.idle_s,
        )
        for node in status.nodes
        for card in node.cards
        if card.replica is not None
    ]
    page.gauges("llmgw_gpu_idle_seconds", "For how long a card that is held did nothing.", samples)
