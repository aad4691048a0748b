"""What is no longer used and refers to itself is swept up between frames: a walk over everything takes several frames.

Counting references frees nearly everything at once. The rest is left to Python's collector, which would walk whenever
so many things were made, and that is while a frame is drawn.
"""

import gc
import math

NEVER = 1_000_000
"""Things made since the last sweep at which Python sweeps by itself after all: no frame makes so many."""
YOUNG = 5_000
"""Things made since the last sweep from which there is one after the frame."""
WHOLE_S = 60.0
"""Least time between two sweeps of everything."""
QUIET_S = 2.0
"""How long nobody may have touched a key before everything is swept."""


class Sweeper:
    """When this process collects its garbage. Times are monotonic."""

    def __init__(self, *, now: float) -> None:
        self._whole_at = now
        self._touched_at = -math.inf
        self._before = gc.get_threshold()
        self._on = False

    def start(self) -> None:
        """From now on here and nowhere else. What is loaded stays for good and need not be walked again."""
        self._before, self._on = gc.get_threshold(), True
        gc.freeze()
        gc.set_threshold(NEVER, *self._before[1:])

    def stop(self) -> None:
        """As it was."""
        if self._on:
            self._on = False
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def touched(self, *, now: float) -> None:
        """A key was pressed, or the mouse moved."""
        self._touched_at = now

    def after_frame(self) -> None:
        """A frame is on the screen."""
        if self._on and gc.get_count()[0] >= YOUNG:
            gc.collect(1)

    def tick(self, *, now: float) -> None:
        """A second has passed: sweep everything where that is due and nobody waits for a key."""
        self.after_frame()
        if self._on and now - self._whole_at >= WHOLE_S and now - self._touched_at >= QUIET_S:
            gc.collect()
            self._whole_at = now
