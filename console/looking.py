"""Fresh figures of what is looked at: while a node or a card is in front, its node is asked for a sample every second.

A page that was left asks nobody, nor does a console that hears nothing, or one that nobody touched for ten minutes.
What comes of it comes with the feed.
"""

import math
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from llmgw.api.problems import ClientError

if TYPE_CHECKING:
    from console.app import Console

FORGOTTEN_S = 600.0
"""A screen that nobody touched for so long is looked at by nobody."""
AFTER_ERROR_S = 10.0
"""A node that is silent, or a server that is older, is not asked again before."""


class Looking:
    """Has the node measured that is looked at. Times are the console's own clock."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._touched_at = console.clock()
        self._refused: tuple[str, float] = ("", -math.inf)
        """Which node could not be asked last, and when."""
        self._asking: Worker[None] | None = None

    def touched(self) -> None:
        """A key was pressed, or the mouse moved."""
        self._touched_at = self._console.clock()

    def tick(self) -> None:
        """A second has passed: ask, in a worker, unless the one before still waits for its answer."""
        console, now = self._console, self._console.clock()
        view = console.main.view
        if view is None or not console.link.live or now - self._touched_at >= FORGOTTEN_S:
            return
        node = view.looked_at()
        refused, at = self._refused
        if not node or (node == refused and now - at < AFTER_ERROR_S):
            return
        if self._asking is None or self._asking.is_finished:
            # Given as a function: one that is overtaken before it begins leaves nothing behind.
            self._asking = console.run_worker(partial(self._ask, node, now), group="sample", name="sample")

    async def _ask(self, node: str, now: float) -> None:
        """Ask once; a refusal is nothing to tell, as the page itself says that its node is silent."""
        try:
            await self._console.admin.call(lambda api: api.sample(node))
        except ClientError:
            self._refused = (node, now)
