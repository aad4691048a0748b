"""A router process with a data plane of a few lines, to test what is around the data plane.

`GET /pid`, `GET /auth` (key in Authorization), `GET /use/ID` records a usage row, `GET /want/M` wants a model,
`GET /slow/S` answers after S seconds. One request a connection.
"""

import os
import socket
import sys
import time

import trio

from llmgw.core.routing import UsageRow
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.process import Serve, main


async def serve(
    listener: socket.socket,
    state: RouterState,
    *,
    public_socket: object,
    drain: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until drained."""
    accepting = trio.socket.from_stdlib_socket(listener)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:

            async def stop() -> None:
                await drain.wait()
                scope.cancel()

            nursery.start_soon(stop)
            task_status.started()
            while True:
                sock, address = await accepting.accept()
                nursery.start_soon(_serve_one, trio.SocketStream(sock), state, str(address[0]))
        accepting.close()


async def _serve_one(stream: trio.SocketStream, state: RouterState, client: str) -> None:
    state.open_requests += 1
    try:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                data = await stream.receive_some()
                if not data:
                    return
                head += data
            status, body = await _answer(head, state, client)
            await stream.send_all(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
            )
            state.requests += 1
    except trio.BrokenResourceError:
        pass
    finally:
        state.open_requests -= 1


async def _answer(head: bytes, state: RouterState, client: str) -> tuple[int, str]:
    lines = head.decode().split("\r\n")
    what, _, argument = lines[0].split(" ")[1].lstrip("/").partition("/")
    match what:
        case "auth":
            given = [line.split(" ")[2] for line in lines if line.startswith("Authorization: Bearer ")]
            try:
                record = await state.authenticate(given[0].encode() if given else None, client)
            except Refusal as refusal:
                return refusal.status, refusal.message
            return 200, record.name
        case "use":
            state.record(UsageRow(id=argument, at=time.time(), key_id="k", model="m", replica="r1", status=200))
        case "want":
            state.want(argument)
        case "slow":
            await trio.sleep(float(argument))
        case "models":
            return 200, ",".join(model.name for model in state.routes.models())
        case _:
            pass
    return 200, str(os.getpid())


def _load() -> Serve:
    return serve


if __name__ == "__main__":
    sys.exit(main(load=_load))
