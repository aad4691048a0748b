"""A few things at once, failing with one plain error instead of a group of them."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")


async def each(limit: int, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Run `work` on every item, `limit` at a time; the first failure cancels the rest and is raised as it is."""
    limiter = trio.Semaphore(limit)
    failures: list[Exception] = []

    async def one(item: T, scope: trio.CancelScope) -> None:
        async with limiter:
            try:
                await work(item)
            # A border of supervision: the error is raised below, without the group a nursery would put around it.
            except Exception as error:
                failures.append(error)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one, item, nursery.cancel_scope)
    if failures:
        raise failures[0]
