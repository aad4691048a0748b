"""How many connections each client address holds open, so that none holds more than its share.

Counted by `address_group`: an IPv6 network of 64 bits, which one subscriber commonly has, is one address. Proxies, and
whatever runs on this machine, speak for many clients and are counted for none; what a proxy asks for a client is
counted for that client while it is asked.
"""

from collections import Counter

from llmgw.router.ports import Refusal
from llmgw.router.ration import address_group


class Shares:
    """Connections open by client address."""

    def __init__(self, most: int) -> None:
        """Allow `most` of one address."""
        self._most = most
        self._open: Counter[str] = Counter()

    def take(self, address: str) -> str | None:
        """One more of `address`: what to give back at its end, none when it has its share."""
        group = address if ":" not in address else address_group(address)
        if self._open[group] >= self._most:
            return None
        self._open[group] += 1
        return group

    def give(self, group: str) -> None:
        """One that `take` counted ended."""
        left = self._open[group] - 1
        if left > 0:
            self._open[group] = left
        else:
            del self._open[group]

    @property
    def addresses(self) -> int:
        """Addresses with anything open."""
        return len(self._open)

    def refusal(self) -> Refusal:
        """For one more than an address's share."""
        return Refusal(
            429,
            f"More than {self._most} connections from your address.",
            code="too_many_connections",
            retry_after_s=1,
        )
