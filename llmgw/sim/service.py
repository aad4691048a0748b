"""The simulated engine itself: routes, keys, slots and faults. A request's slot is free the moment its client leaves,
whatever the request was doing."""

import contextlib
import hmac
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import trio

from llmgw.sim.answers import embeddings_body, error_body, injected_error, models_body
from llmgw.sim.faults import NO_FAULTS, Faults
from llmgw.sim.generation import EVENT_STREAM, JSON, Generation, drip
from llmgw.sim.http1 import ClientGone, Connection, Request, head, stays_open
from llmgw.sim.metrics import Counters, metrics_text
from llmgw.sim.options import EngineOptions
from llmgw.sim.pacer import Pacer
from llmgw.sim.prefixes import PrefixCache
from llmgw.sim.requests import EmbeddingJob, Job, Refused, decode_embeddings, decode_generation

GENERATIONS = {b"/v1/chat/completions": True, b"/v1/completions": False}
EMBEDDINGS = b"/v1/embeddings"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A whole answer that is not a stream."""

    status: int
    body: bytes
    content_type: str = JSON
    extra: tuple[str, ...] = ()
    faults: Faults = NO_FAULTS


class Engine:
    """One simulated engine. `run` paces its streams; `serve` answers one connection. Made inside trio."""

    def __init__(self, options: EngineOptions, *, pacer: Pacer | None = None) -> None:
        """With a `pacer` of its owner's, whoever runs that runs the streams, and `run` need not be started."""
        self.options = options
        self.counters = Counters()
        self._prefixes = PrefixCache(options.prefix_cache_kb)
        self._slots = trio.Semaphore(options.slots)
        self._pacer = pacer or Pacer()
        self._random = random.Random(options.seed)
        self._ready_at = trio.current_time() + options.start_delay_s

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns."""
        await self._pacer.run(task_status=task_status)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._slots.statistics().tasks_waiting

    @property
    def loading(self) -> bool:
        """Whether the simulated model is still being loaded."""
        return trio.current_time() < self._ready_at or "loading" in self.options.fault.split(",")

    async def serve(self, connection: Connection) -> None:
        """Answer requests until the connection ends, and close it."""
        try:
            while (request := await connection.next_request(self.options.keep_alive_s)) is not None:
                if not await self.attend(connection, request):
                    break
        except Refused as refused:
            with contextlib.suppress(ClientGone):
                await connection.write(_render(_refusal(refused), None))
                await connection.linger()
        except ClientGone:
            pass
        finally:
            connection.close()

    async def attend(self, connection: Connection, request: Request) -> bool:
        """Answer one request while watching for the client's leaving; whether another may follow."""
        goes_on = False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await connection.watch()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            with contextlib.suppress(ClientGone):
                goes_on = await self._answer(connection, request)
            nursery.cancel_scope.cancel()
        return goes_on

    async def _answer(self, connection: Connection, request: Request) -> bool:
        path = request.target.partition(b"?")[0]
        try:
            reply = self._page(path, request)
            if reply is None:
                reply = await self._infer(connection, request, path)
        except Refused as refused:
            reply = _refusal(refused)
        if reply is None:
            return stays_open(request, None)
        data = _render(reply, request)
        if reply.faults.drip_ms is None:
            await connection.write(data)
        else:
            await drip(connection, data, reply.faults.drip_ms)
        return stays_open(request, len(reply.body))

    def _page(self, path: bytes, request: Request) -> Reply | None:
        """What is answered without a slot; none for inference. Raises Refused."""
        if path == b"/health" and request.method == b"GET":
            if self.loading:
                return Reply(status=self.options.loading_code, body=b'{"status":"loading"}')
            return Reply(status=200, body=b'{"status":"ok"}')
        if path == b"/metrics" and request.method == b"GET":
            text = metrics_text(self.counters, self.options, self.waiting)
            return Reply(status=200, body=text, content_type="text/plain; version=0.0.4")
        self._check_key(request)
        if path == b"/v1/models" and request.method == b"GET":
            return Reply(status=200, body=models_body(self.options.names, self.options.ctx_size))
        if path not in GENERATIONS and path != EMBEDDINGS:
            raise Refused(
                404, f"{request.method.decode()} {path[:100].decode('latin-1')} is not here", code="not_found"
            )
        if request.method != b"POST":
            raise Refused(405, f"{path.decode()} takes POST", code="method_not_allowed")
        if self.loading:
            raise Refused(503, "the model is loading; try again in a second", code="loading")
        return None

    def _check_key(self, request: Request) -> None:
        if not self.options.keys:
            return
        scheme, _, key = request.headers.get(b"authorization", b"").partition(b" ")
        known = [hmac.compare_digest(key.strip(), candidate) for candidate in self.options.keys]
        if scheme.lower() != b"bearer" or not any(known):
            raise Refused(401, "the engine's key is missing or wrong", code="invalid_api_key")

    async def _infer(self, connection: Connection, request: Request, path: bytes) -> Reply | None:
        """A whole answer, or none when it was streamed. Raises Refused, ClientGone."""
        given = request.headers.get(b"x-sim-fault")
        fault = given.decode("latin-1") if given is not None else None
        if path == EMBEDDINGS:
            return await self._embed(connection, request, decode_embeddings(request.body, fault, self.options))
        job = decode_generation(request.body, fault, self.options, chat=GENERATIONS[path])
        async with self._slot():
            await _strike(connection, request, job.faults)
            return await self._generate(connection, request, job)

    async def _generate(self, connection: Connection, request: Request, job: Job) -> Reply | None:
        generation = Generation(job, self.options, self.counters, self._random, self._prefixes)
        try:
            if job.stream:
                goes_on = await generation.stream(connection, request, self._pacer)
                if not goes_on:
                    raise ClientGone("the connection ends with its stream")
                return None
            return Reply(status=200, body=await generation.complete(connection, request), faults=job.faults)
        finally:
            generation.release()

    async def _embed(self, connection: Connection, request: Request, job: EmbeddingJob) -> Reply:
        async with self._slot():
            await _strike(connection, request, job.faults)
            await trio.sleep(self.options.prefill_ms / 1e3)
            self.counters.prompt_tokens += job.prompt_tokens
            self.counters.finished += 1
            return Reply(status=200, body=embeddings_body(job, self.options.seed), faults=job.faults)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._slots.value == 0 and self.waiting >= self.options.queue:
            self.counters.refused += 1
            raise Refused(
                503,
                f"all {self.options.slots} slots are taken and {self.waiting} requests wait; try again in a second",
                code="queue_full",
            )
        async with self._slots:
            self.counters.running += 1
            try:
                yield
            finally:
                self.counters.running -= 1


async def _strike(connection: Connection, request: Request, faults: Faults) -> None:
    """Faults that come before anything is answered. Raises Refused, ClientGone."""
    if faults.drop_before_headers:
        connection.close(reset=True)
        raise ClientGone("injected fault")
    if faults.hang_after_headers:
        await connection.write(head(200, EVENT_STREAM, length=None, request=request))
    if faults.hang or faults.hang_after_headers:
        await trio.sleep_forever()
    if (refused := injected_error(faults)) is not None:
        raise refused
    await trio.sleep(faults.slow_start_s)


def _refusal(refused: Refused) -> Reply:
    extra = ("Retry-After: 1",) if refused.status in (429, 503) else ()
    return Reply(status=refused.status, body=error_body(refused), extra=extra)


def _render(reply: Reply, request: Request | None) -> bytes:
    start = head(reply.status, reply.content_type, length=len(reply.body), request=request, extra=reply.extra)
    return start + reply.body
