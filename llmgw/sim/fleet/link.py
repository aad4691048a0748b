"""A link that can fall silent as a hung machine does: its stream stays open, and nothing is said on it.

Life of a silence: `hush`; the control plane's own rule ends the session (`ended`); whoever keeps the link up lets it
rest until the silence is over; `speak`, and the next stream's Hello tells the whole state.
"""

from typing import TYPE_CHECKING

from agent.link import Link, LinkTimes
from llmgw.wire.llmgw.v1 import AgentMessage

if TYPE_CHECKING:
    from agent.link_rpc import Call

TIMES = LinkTimes(silent_s=600.0)
"""Longer than any silence: without heartbeats nothing is acknowledged, and an agent of its own would leave first."""


class SilentLink(Link):
    """The agent's link, with a mouth that can be shut."""

    _hushed = False

    def hush(self) -> None:
        """Say nothing from here on, heartbeats included; what is said meanwhile is lost. The stream stays."""
        self._hushed = True

    def speak(self) -> None:
        """Say what there is to say."""
        self._hushed = False

    async def ended(self) -> None:
        """Return when there is no welcomed stream."""
        while self.connected:
            await self.changed.wait()

    async def _send(self, call: "Call", message: AgentMessage) -> None:
        if not self._hushed:
            await super()._send(call, message)
