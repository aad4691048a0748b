"""What the store may forget, it forgets: single usage rows after their time; the daily sums and the audit stay."""

import logging

import trio

from llmgw.control.leadership import Leadership
from llmgw.core.errors import LlmgwError
from llmgw.store import usage as stored_usage

KEEP_USAGE_DAYS = 90
"""Rows of single requests are kept this long: at 10 requests a second some 30 GB."""
EVERY_S = 3600.0
"""How often old rows are looked for."""
BATCH_ROWS = 5_000
"""Rows dropped in one transaction, so that none holds others up for long."""
BETWEEN_BATCHES_S = 0.5
"""Pause between two batches; requests' own rows come first."""

log = logging.getLogger(__name__)


async def keep_house(leadership: Leadership, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Service of the leader: drops old usage rows, for ever. A store that is away is asked again at the next turn."""
    task_status.started()
    while True:
        try:
            dropped = await _drop_old(leadership)
        except LlmgwError as error:
            log.warning("old usage could not be dropped: %s", error.message)
        else:
            if dropped:
                log.info("old usage dropped", extra={"rows": dropped, "older_than_days": KEEP_USAGE_DAYS})
        await trio.sleep(EVERY_S)


async def _drop_old(leadership: Leadership) -> int:
    total = 0
    while True:
        dropped = await leadership.lead(stored_usage.drop_old, days=KEEP_USAGE_DAYS, limit=BATCH_ROWS)
        total += dropped
        if dropped < BATCH_ROWS:
            return total
        await trio.sleep(BETWEEN_BATCHES_S)
