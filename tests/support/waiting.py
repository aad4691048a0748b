"""Waiting for a condition under a deadline: tests have no other sleep."""

import time
from collections.abc import Callable

import trio

DEADLINE_S = 60.0
"""Longer than any condition takes on a busy machine."""
POLL_S = 0.01


async def until(condition: Callable[[], bool], *, deadline_s: float = DEADLINE_S) -> None:
    """Return once `condition()`, called in a thread, is true; raises trio.TooSlowError at the deadline."""
    with trio.fail_after(deadline_s):
        while not await trio.to_thread.run_sync(condition):  # noqa: ASYNC110 - the condition is outside this process
            await trio.sleep(POLL_S)


def until_sync(condition: Callable[[], bool], *, deadline_s: float = DEADLINE_S) -> None:
    """`until` for tests without trio; raises TimeoutError at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not true within {deadline_s:g} s: {condition}")
        time.sleep(POLL_S)
