"""How many unrecognised API keys one address may try: guesses are counted when they turn out to be guesses.

An address whose look-ups are all still open waits for one of them instead of being refused, so that many people behind
one address with good keys are never taken for somebody guessing.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field

import trio

from llmgw.router.ports import Refusal

UNKNOWN_KEYS_A_MINUTE = 20
"""Different unrecognised keys an address may present in a window, and look-ups it may have open at once."""
WINDOW_S = 60.0
"""Length of a window; it begins with an address's first unrecognised key."""
MAX_ADDRESSES = 10_000
"""Addresses remembered; the one heard of longest ago is forgotten first."""
_IPV6_PREFIX = 64
"""One subscriber commonly holds a whole /64, so its addresses are one address here."""


@dataclass(slots=True)
class _Account:
    """One address: what it guessed in its window and what it waits for."""

    window_began: float
    guesses: int = 0
    open: int = 0
    settled: trio.Event = field(default_factory=trio.Event)


def address_group(client: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 network of 64 bits; other text stands for itself."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_PREFIX), strict=False))


class Ration:
    """Guesses by address. Times are monotonic seconds given by the caller."""

    def __init__(self, *, limit: int = UNKNOWN_KEYS_A_MINUTE) -> None:
        """Allow `limit` unrecognised keys an address and window."""
        self._limit = limit
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def check(self, group: str, now: float) -> trio.Event | None:
        """None when `group` may look a key up now, else an event to wait for before asking again.

        Raises Refusal (429) when the window's guesses are used up.
        """
        account = self._accounts.get(group)
        if account is None:
            return None
        if now - account.window_began >= WINDOW_S:
            account.window_began, account.guesses = now, 0
        if account.guesses >= self._limit:
            raise Refusal(
                429,
                f"too many unrecognised api keys from this address: {account.guesses} within a minute",
                type="rate_limit_error",
                code="too_many_unknown_keys",
                retry_after_s=account.window_began + WINDOW_S - now,
            )
        return account.settled if account.guesses + account.open >= self._limit else None

    def opened(self, group: str, now: float) -> None:
        """A look-up began for `group`; each is ended by one `closed`."""
        account = self._accounts.get(group)
        if account is None:
            account = self._accounts[group] = _Account(window_began=now)
            if len(self._accounts) > MAX_ADDRESSES:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(group)
        account.open += 1

    def closed(self, group: str, now: float, *, guess: bool) -> None:
        """A look-up of `group` ended; `guess` says the key is nobody's."""
        account = self._accounts.get(group)
        if account is None:
            return
        account.open = max(0, account.open - 1)
        if guess:
            if account.guesses == 0:
                account.window_began = now
            account.guesses += 1
        account.settled.set()
        account.settled = trio.Event()
        if account.open == 0 and account.guesses == 0:
            del self._accounts[group]
