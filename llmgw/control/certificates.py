"""The cluster's own certificates while they are in use: the control plane's is made anew before it ends, and operators
are told of nodes' that end soon.

A server may run for years, and its certificate lives for one. A node's agent renews its own; one that was away for too
long, or is of an older version, joins again.
"""

import datetime as dt
import logging
from collections.abc import Callable, Mapping

import trio

from llmgw.control.pki import Authority
from llmgw.core.errors import LlmgwError
from llmgw.core.units import plural

LOOK_S = 6 * 3600.0
"""How often the control plane's certificate is looked at: it is renewed with four months of its year left."""
WARN_BEFORE = dt.timedelta(days=30)
"""A node's certificate that ends sooner is told of."""

log = logging.getLogger(__name__)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Certificates:
    """Keeps the control plane's certificate good, and knows which nodes' are not for long."""

    def __init__(
        self,
        authority: Authority,
        ends: Callable[[], Mapping[str, dt.datetime]],
        now: Callable[[], dt.datetime] = _now,
    ) -> None:
        """`ends` is when each node's certificate ends, by the node's name."""
        self._authority = authority
        self._ends = ends
        self._now = now
        self._trouble = ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: look, until cancelled. The start has just looked, so the first look is after a while."""
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Renew the control plane's certificate if it is time; open connections keep the one they began with."""
        try:
            renewed = await trio.to_thread.run_sync(self._authority.renew, self._now())
            # Here and not in that thread: handshakes of this one read the same contexts.
            self._authority.serve_renewed()
        except (OSError, ValueError, LlmgwError) as error:
            self._trouble = f"the control plane's certificate cannot be renewed: {error}"
            log.error("%s", self._trouble)
            return
        self._trouble = ""
        if renewed:
            log.info("the control plane's certificate is renewed")

    def problems(self) -> tuple[str, ...]:
        """A sentence for what ends soon or has ended."""
        return tuple(text for text in (self._trouble, self._nodes()) if text)

    def _nodes(self) -> str:
        now = self._now()
        soon = sorted((end, node) for node, end in self._ends().items() if end - now < WARN_BEFORE)
        if not soon:
            return ""
        end, node = soon[0]
        verb = "ended" if end <= now else "ends"
        others = f", and {plural(len(soon) - 1, 'other node')}'s within 30 days" if len(soon) > 1 else ""
        return (
            f"the certificate of node {node} {verb} on {end:%Y-%m-%d}{others}, and its agent has not renewed it: the "
            "cluster refuses a node from then on. Stop its agent (engines go on), join again with a token of "
            "`llmgw ctl join-token`, and start it"
        )
