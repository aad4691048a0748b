"""One answer on one connection: prefill, then tokens at their pace, or the fault that was asked for."""

import random
from collections.abc import Iterator

import trio

from llmgw.sim.answers import Answer, answer_tokens
from llmgw.sim.http1 import ClientGone, Connection, Request, chunk, head, last_chunk, stays_open
from llmgw.sim.metrics import Counters
from llmgw.sim.options import EngineOptions
from llmgw.sim.pacer import PacedStream, Pacer
from llmgw.sim.prefixes import PrefixCache
from llmgw.sim.requests import Job

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"


class Generation:
    """Generates for one job that holds a slot. Its tokens count as cache until `release`."""

    def __init__(
        self, job: Job, options: EngineOptions, counters: Counters, source: random.Random, prefixes: PrefixCache
    ) -> None:
        self.job = job
        self._options = options
        self._counters = counters
        self._random = source
        self._prefixes = prefixes
        self._answer = Answer(job)
        self._emitted = 0
        self._finished = False
        rate = options.rate if job.sim.rate is None else job.sim.rate
        self._token_s = 1 / rate if rate else 0.0
        counters.prompt_tokens += job.prompt_tokens
        counters.kv_tokens += job.prompt_tokens

    def release(self) -> None:
        """The generation is over, whichever way."""
        self._counters.kv_tokens -= self.job.prompt_tokens + self._emitted
        if self._finished:
            self._counters.finished += 1
        else:
            self._counters.left += 1

    async def stream(self, connection: Connection, request: Request, pacer: Pacer) -> bool:
        """Answer with events; whether the connection serves another request. Raises ClientGone."""
        faults = self.job.faults
        opening = head(200, EVENT_STREAM, length=None, request=request, extra=("Cache-Control: no-cache",))
        if faults.silent_s:
            await connection.write(opening)
            opening = b""
            await trio.sleep(faults.silent_s)
        await self._prefill()
        if role := self._answer.role_event():
            opening += chunk(role, request)
        size = self.job.sim.chunk or self._options.chunk
        writes = self._writes(opening, request, size)
        if faults.drip_ms is None:
            await self._paced(connection, writes, size, pacer)
        else:
            for data in writes:
                await drip(connection, data, faults.drip_ms)
        if self._dropped:
            connection.close()
            raise ClientGone("injected fault")
        self._finished = True
        return stays_open(request, None)

    async def complete(self, connection: Connection, request: Request) -> bytes:
        """The whole answer's body, when it is due; raises ClientGone where the fault cuts it."""
        await trio.sleep(self.job.faults.silent_s)
        await self._prefill()
        await trio.sleep(self._token_s * self.job.tokens)
        text = "".join(self._tokens())
        body = self._answer.body(text, self._emitted)
        if self._dropped:
            await connection.write(head(200, JSON, length=len(body), request=request) + body[: len(body) // 2])
            connection.close()
            raise ClientGone("injected fault")
        self._finished = True
        return body

    @property
    def _dropped(self) -> bool:
        after = self.job.faults.drop_after_tokens
        return after is not None and after < self.job.tokens

    async def _prefill(self) -> None:
        options = self._options
        base_ms = options.prefill_ms if self.job.sim.prefill_ms is None else self.job.sim.prefill_ms
        cached = self._answer.cached_tokens = self._look_up()
        await trio.sleep(base_ms / 1e3 + (self.job.prompt_tokens - cached) * options.prefill_per_token_us / 1e6)

    def _look_up(self) -> int:
        """Tokens of the prompt that need not be computed; at least its last one always must."""
        prompt = self.job.prompt.encode("utf-8", "surrogatepass")
        held = self._prefixes.read(prompt)
        cached = min(self.job.prompt_tokens - 1, self.job.prompt_tokens * held // len(prompt)) if held else 0
        self._counters.cached_tokens += cached
        return cached

    async def _paced(self, connection: Connection, writes: Iterator[bytes], size: int, pacer: Pacer) -> None:
        stream = PacedStream(
            connection.sock,
            writes,
            period_s=self._token_s * size,
            jitter=self._options.jitter,
            source=self._random,
        )
        try:
            while not stream.finished:
                pacer.add(stream, due=trio.current_time())
                await stream.attention.wait()
                if stream.error is not None:
                    raise ClientGone(str(stream.error))
                await connection.write(stream.unsent)
        finally:
            stream.withdrawn = True

    def _writes(self, pending: bytes, request: Request, size: int) -> Iterator[bytes]:
        for token in self._tokens():
            pending += chunk(self._answer.token_event(token), request)
            if self._emitted % size == 0 and self._emitted < self.job.tokens:
                yield pending
                pending = b""
        if not self._dropped:
            pending += chunk(self._answer.closing_events(self._emitted), request) + last_chunk(request)
        if pending:
            yield pending

    def _tokens(self) -> Iterator[str]:
        for token in answer_tokens(self.job, self._options.seed):
            if self._dropped and self._emitted == self.job.faults.drop_after_tokens:
                return
            self._emitted += 1
            self._counters.generated_tokens += 1
            self._counters.kv_tokens += 1
            yield token


async def drip(connection: Connection, data: bytes, gap_ms: float) -> None:
    """Send one byte at a time; raises ClientGone."""
    for i in range(len(data)):
        await connection.write(data[i : i + 1])
        await trio.sleep(gap_ms / 1e3)
