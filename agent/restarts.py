"""When a failed engine is started again. Pure: told what happened, it answers with a wait or gives up."""

HEALTHY_RUN_S = 10.0
"""An engine that was Ready this long has shown that its start is sound."""
MAX_FAST_FAILURES = 5
"""So many failures in a row without a healthy run between them, and the shard has failed."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0


class RestartPolicy:
    """Counts failures in a row; a healthy run forgets them."""

    def __init__(self) -> None:
        self.failures = 0

    def wait_after(self, ready_s: float | None) -> float | None:
        """Seconds to wait before the next start after a run that was Ready for `ready_s` (none: never).

        None gives up. The first failure after the engine was Ready is repeated at once.
        """
        if ready_s is not None and ready_s >= HEALTHY_RUN_S:
            self.failures = 0
        self.failures += 1
        if self.failures >= MAX_FAST_FAILURES:
            return None
        if ready_s is not None and self.failures == 1:
            return 0.0
        return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (self.failures - 1)))
