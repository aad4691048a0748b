"""The real admin app on a real unix socket and TCP port, in a thread with its own trio loop, for clients that block."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trio
from hypercorn.typing import ASGIFramework

from llmgw.core.addresses import parse_listen
from llmgw.web.access import Access, Token, permission_of
from llmgw.web.admin import admin_app
from llmgw.web.serve import GRACE_S, open_tcp, open_unix, serve
from tests.support.fake_control import FakeControl

TOKENS = {role: f"{role}-token-0123456789" for role in ("viewer", "operator", "admin")}
START_S = 10.0


@dataclass(kw_only=True)
class Running:
    """Where the apps listen, and the loop they live in."""

    socket: Path
    port: int
    control: FakeControl
    token: trio.lowlevel.TrioToken
    closing: trio.Event
    ended: threading.Event

    @property
    def unix(self) -> str:
        """As `--server` takes it."""
        return f"unix:{self.socket}"

    @property
    def tcp(self) -> str:
        """As `--server` takes it."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Ask for a stop, as SIGTERM does."""
        self.token.run_sync_soon(self.closing.set)


def access_for_tests() -> Access:
    """One token a role, named after it."""
    return Access(
        tokens=[Token(name=role, permission=permission_of(role), secret=text.encode()) for role, text in TOKENS.items()]
    )


@contextlib.contextmanager
def running(
    directory: Path,
    control: FakeControl | None = None,
    *,
    app: ASGIFramework | None = None,
    grace_s: float = GRACE_S,
) -> Iterator[Running]:
    """The admin app (or `app`) served until the block ends."""
    control = control or FakeControl()
    served = app if app is not None else admin_app(control, access_for_tests())
    started: list[Running] = []
    ready, ended = threading.Event(), threading.Event()

    async def main() -> None:
        socket, tcp = open_unix(directory / "admin.sock"), open_tcp(parse_listen("127.0.0.1:0", source="test"))
        closing = trio.Event()
        port = tcp.getsockname()[1]
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[None]) -> None:
                await serve(served, [socket, tcp], closing=closing, grace_s=grace_s, task_status=task_status)

            await nursery.start(run)
            started.append(
                Running(
                    socket=directory / "admin.sock",
                    port=port,
                    control=control,
                    token=trio.lowlevel.current_trio_token(),
                    closing=closing,
                    ended=ended,
                )
            )
            ready.set()

    def thread() -> None:
        try:
            trio.run(main)
        finally:
            ended.set()

    worker = threading.Thread(target=thread, name="admin app")
    worker.start()
    try:
        assert ready.wait(START_S), "the admin app did not start"
        yield started[0]
    finally:
        if started and not ended.is_set():
            started[0].stop()
        worker.join(grace_s + START_S)
        assert not worker.is_alive(), "the admin app did not stop"
