"""All replicas of the fleet behind one listener: `/r/<replica>` says whose the request is, the rest is the engine's.

One pacer writes the streams of all of them, so a thousand replicas that nobody asks cost nothing.
"""

import contextlib

import trio

from llmgw.sim.accepting import accept, listen
from llmgw.sim.answers import error_body
from llmgw.sim.generation import JSON
from llmgw.sim.http1 import ClientGone, Connection, Request, head, stays_open
from llmgw.sim.pacer import Pacer
from llmgw.sim.requests import Refused
from llmgw.sim.service import Engine

PREFIX = b"/r/"
KEEP_ALIVE_S = 300.0
"""An idle connection is closed after this long; routers close theirs sooner."""


class Hall:
    """The listener and who is behind it. Made inside trio; raises OSError when it cannot listen."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = listen(host, port)
        bound, self._port = self._listener.getsockname()[:2]
        self._host = f"[{bound}]" if ":" in bound else bound
        self._engines: dict[bytes, Engine] = {}
        self.pacer = Pacer()

    @property
    def url(self) -> str:
        """`http://HOST:PORT` of the listener."""
        return f"http://{self._host}:{self._port}"

    def endpoint(self, replica_id: str) -> str:
        """Where routers reach that replica."""
        return f"{self.url}{PREFIX.decode()}{replica_id}"

    def open(self, replica_id: str, engine: Engine) -> None:
        """Serve the replica from now on."""
        self._engines[replica_id.encode()] = engine

    def close(self, replica_id: str) -> None:
        """Answer for it no more; what is being answered goes on."""
        self._engines.pop(replica_id.encode(), None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then close the listener and every connection."""
        with contextlib.closing(self._listener):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.pacer.run)
                task_status.started()
                await accept(self._listener, nursery, self._serve)

    async def _serve(self, connection: Connection) -> None:
        """Hand each request of the connection to its replica."""
        try:
            while (request := await connection.next_request(KEEP_ALIVE_S)) is not None:
                engine = self._find(request)
                goes_on = await (_nobody(connection, request) if engine is None else engine.attend(connection, request))
                if not goes_on:
                    break
        except Refused as refused:
            with contextlib.suppress(ClientGone):
                await _refuse(connection, None, refused)
                await connection.linger()
        except ClientGone:
            pass
        finally:
            connection.close()

    def _find(self, request: Request) -> Engine | None:
        """The replica the target names, which is taken from the target."""
        if not request.target.startswith(PREFIX):
            return None
        name, slash, rest = request.target[len(PREFIX) :].partition(b"/")
        request.target = slash + rest
        return self._engines.get(name)


async def _nobody(connection: Connection, request: Request) -> bool:
    """No such replica: 503, as a port nobody listens on would be to a router."""
    return await _refuse(connection, request, Refused(503, "this replica is not here any more", code="gone"))


async def _refuse(connection: Connection, request: Request | None, refused: Refused) -> bool:
    body = error_body(refused)
    await connection.write(head(refused.status, JSON, length=len(body), request=request) + body)
    return stays_open(request, len(body))
