"""Traffic from before the console came, so that bars have a past at once; without it they begin now."""

from console.client.api import Admin
from console.state.cluster import ALL
from console.state.store import Store
from llmgw.api.problems import ClientError

MAX_MODELS = 24
"""Models whose past is asked for, the busiest first: as many as a screen lists."""


async def fetch_past(admin: Admin, store: Store) -> None:
    """Put what the server remembers under the store's samples."""
    traffic = store.state.traffic
    busiest = sorted(traffic.keys() - {ALL}, key=lambda name: -traffic[name].output_tokens_per_s)
    for model in (None, *busiest[:MAX_MODELS]):
        try:
            past = await admin.call(lambda api, model=model: api.history(model))  # type: ignore[misc]
        except ClientError:
            # An older server, or none any more: the feed says so where it matters.
            return
        store.history.backfill(past)
