"""A console in a test: fed from recorded messages without a network, or from a server, and read back as text."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from textual.pilot import Pilot
from textual.strip import Strip

from console.app import Console, Ending
from console.state.store import Link, Store
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import Message
from tests.support.fleet_rows import NOW

DEADLINE_S = 60.0
"""Nothing takes this long; a machine busy with other tests may take some of it."""
NOWHERE = ServerTarget(socket=Path("/nowhere/berlin-lab/admin.sock"))


def fed(messages: Iterable[Message], *, link: Link | None = None) -> Store:
    """A store that has heard `messages`."""
    store = Store()
    for message in messages:
        store.receive(message, at=message.now)
    store.set_link(link or Link(state="live", since=NOW, latency_s=0.002))
    return store


def console_with(
    *messages: Message,
    link: Link | None = None,
    theme: str = "dark",
    ascii_only: bool = False,
    read_only: bool = False,
    start: str = "overview",
    now: float = NOW,
    target: ServerTarget = NOWHERE,
) -> Console:
    """A console that has heard `messages` and hears nothing more; its clock stands at `now`."""
    return Console(
        target,
        theme=theme,
        ascii_only=ascii_only,
        read_only=read_only,
        start=start,
        store=fed(messages, link=link),
        follow=False,
        clock=lambda: now,
    )


@contextlib.asynccontextmanager
async def shown(console: Console, *, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[Ending]]:
    """The console on a screen of `size`, its first view drawn."""
    async with console.run_test(size=size) as pilot:
        await until(lambda: console.main.view is not None and console.main.view.is_mounted)
        await pilot.pause()
        yield pilot


async def tell(console: Console, pilot: Pilot[Ending], *messages: Message) -> None:
    """The feed says `messages`, and a frame later the screen shows them."""
    for message in messages:
        console.store.receive(message, at=message.now)
    update = console.store.take()
    if update is not None:
        console.post_message(Console.Changed(update))
    await pilot.pause()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fails at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def screen_lines(console: Console) -> list[str]:
    """What is on the screen, a text a line."""
    width, height = console.size
    compositor = console.screen._compositor
    return [Strip(strip, width).text.ljust(width)[:width] for strip in compositor.render_strips()][:height]


def screen_text(console: Console) -> str:
    """What is on the screen."""
    return "\n".join(screen_lines(console))
