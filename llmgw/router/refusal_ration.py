"""How many refusals are written down: a client that asks again and again must not push all others out of the log."""

from dataclasses import dataclass

PER_S = 2.0
IN_A_ROW = 60.0
"""Of one key, and of all clients without a good one together: so many a second, and so many at once."""
MAX_KEYS = 4096
"""Keys remembered; past it all begin anew."""


@dataclass(slots=True)
class _Account:
    left: float
    at: float
    passed_over: int = 0


class RefusalRation:
    """Accounts by key id; the empty one is everybody's who has none. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def take(self, key_id: str, now: float) -> int | None:
        """How many refusals were passed over since the last that was written down; none: pass this one over too."""
        account = self._accounts.get(key_id)
        if account is None:
            if len(self._accounts) >= MAX_KEYS:
                self._accounts.clear()
            account = self._accounts[key_id] = _Account(IN_A_ROW, now)
        account.left = min(IN_A_ROW, account.left + (now - account.at) * PER_S)
        account.at = now
        if account.left < 1.0:
            account.passed_over += 1
            return None
        account.left -= 1.0
        passed_over, account.passed_over = account.passed_over, 0
        return passed_over
