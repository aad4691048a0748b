"""Going to the page of something that was just made: the feed tells of it a moment after the answer does."""

import asyncio
from typing import TYPE_CHECKING

from console.places import Place
from console.screens.view import row_of

if TYPE_CHECKING:
    from console.app import Console

LONGEST_S = 2.0
"""The feed tells at most ten times a second; what has not come by then is on its page's own word."""
STEP_S = 0.05


def go_when_there(console: "Console", place: Place) -> None:
    """Show `place` once its subject is known; a move made meanwhile wins."""
    console.run_worker(_go(console, place), group="arriving", exclusive=True)


async def _go(console: "Console", place: Place) -> None:
    left_from = console.main.trail
    for _ in range(round(LONGEST_S / STEP_S)):
        if place.subject is None or row_of(console.store.state, place.subject) is not None:
            break
        await asyncio.sleep(STEP_S)
    if console.main.trail == left_from and console.screen is console.main:
        console.go(place)
