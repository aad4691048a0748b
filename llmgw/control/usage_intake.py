"""Usage on its way into the store: every row of a batch is stored in the end, or can never be and is told of.

Routers keep their rows until they hear that they are stored, so waiting here loses none.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.routing import UsageRow

STORE_FIRST_S = 0.2
STORE_LAST_S = 5.0
"""Usage that could not be stored is tried again after this long at first and at most."""

StoreUsage = Callable[[Sequence[UsageRow]], Awaitable[None]]
"""Stores rows, those already there once; raises Unavailable (ask again) or InvalidInput (a row it cannot hold)."""

_log = logging.getLogger(__name__)


async def store_patiently(store: StoreUsage, rows: Sequence[UsageRow]) -> None:
    """Return once `rows` are stored, but for those that the store can never hold."""
    wait_s = STORE_FIRST_S
    while True:
        try:
            await store(rows)
            return
        except InvalidInput as error:
            if len(rows) == 1:
                _log.error("usage row %r cannot be stored and is dropped: %s", rows[0].id, error)
                return
            # One row must not keep the others out.
            for row in rows:
                await store_patiently(store, (row,))
            return
        except Unavailable as error:
            _log.warning("%d rows of usage wait for the store: %s", len(rows), error)
        except Exception:
            # Rows are kept by the router until they are stored; whatever is wrong may pass.
            _log.exception("%d rows of usage could not be stored", len(rows))
        await trio.sleep(wait_s)
        wait_s = min(wait_s * 2, STORE_LAST_S)
