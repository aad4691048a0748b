"""A control plane in memory that satisfies `llmgw.web.ports.ControlPlane`, for tests of what stands in front of one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec
import trio

from llmgw.api import types as t
from llmgw.api import watch as w
from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.api.series import Of, Scope, Series, SeriesAnswer, check_figure
from llmgw.control.live_reader import Reader
from llmgw.control.live_table import Cursor, LiveTable
from llmgw.control.requests import RequestReader
from llmgw.core import why
from llmgw.core.catalog import Model
from llmgw.core.engine_checks import EngineCheck
from llmgw.core.errors import CannotPlace, Conflict, InvalidInput, NotFound, Unavailable
from llmgw.core.requests import RequestLine
from tests.support.fake_bands import FakeBands
from tests.support.fake_keys import KEY as KEY
from tests.support.fake_keys import NOW as NOW
from tests.support.fake_keys import FakeKeys


def raw(value: object) -> msgspec.Raw:
    """A value as the JSON it travels as."""
    return msgspec.Raw(msgspec.json.encode(value))


@dataclass
class FakeControl(FakeKeys, FakeBands):
    """Keeps what it was asked; names with a meaning of their own are listed in each method."""

    catalog: dict[str, t.ModelInfo] = field(default_factory=dict)
    values: dict[str, msgspec.Raw] = field(default_factory=lambda: {"router.timeouts.connect": raw(2.0)})
    leads: str | None = "server-1"
    is_self: bool = True
    """Whether that is this server."""
    open_logs: int = 0
    open_watches: int = 0
    feed: LiveTable | None = None
    """What readers follow; each a table of its own without it."""
    watched: list[tuple[w.Subscription, str, str, frozenset[str]]] = field(default_factory=list)
    lines: list[RequestLine] = field(default_factory=list)
    """The request log."""
    request_log: RequestReader | None = None
    """What is asked for requests in place of `lines`."""
    log_lines: list[str] = field(default_factory=lambda: [f"line {i}" for i in range(500)])
    more_lines: tuple[str, ...] = ()
    """Lines that come while somebody follows, before it goes quiet."""
    fail_log_after: int | None = None
    """Follow this many lines, then lose the node."""
    hold: trio.Event | None = None
    """When set, `status` waits for it."""
    held: trio.Event = field(default_factory=trio.Event)
    node_names: tuple[str, ...] = ("gpu0", "gpu1")
    sets: list[str] = field(default_factory=lambda: ["file:/m/needed.gguf", "file:/m/orphan.gguf"])

    async def leader(self) -> t.Leader:
        return t.Leader(leader=self.leads, epoch=3, is_self=self.is_self)

    async def status(self) -> t.ClusterStatus:
        if self.hold is not None:
            self.held.set()
            await self.hold.wait()
        server = t.ServerInfo(id="server-1", pid=41, host="here", leader=True, version="0.1.0", epoch=3)
        return t.ClusterStatus(
            version="0.1.0",
            cluster_id="c1",
            leader=self.leads,
            epoch=3,
            servers=(server,),
            routers=(t.RouterInfo(pid=42, port=8080, requests=7),),
            nodes=tuple(await self.nodes()),
            models=tuple(self.catalog.values()),
            replicas=tuple(await self.replicas()),
            database="embedded pid 40",
            problems=("qwen cannot be placed: 3.2 GB are missing on gpu0",),
        )

    async def metrics(self) -> str:
        return "# TYPE llmgw_nodes gauge\nllmgw_nodes 2\n"

    async def nodes(self) -> Sequence[t.NodeInfo]:
        return [await self.node(name) for name in self.node_names]

    async def node(self, name: str) -> t.NodeInfo:
        if name not in self.node_names:
            raise NotFound(f"there is no node {name!r}; known are {', '.join(self.node_names)}")
        card = t.CardInfo(
            uuid="GPU-1", index=0, name="NVIDIA H100", gpu_class="h100-80g", memory_total_bytes=80 * 10**9
        )
        return t.NodeInfo(
            name=name,
            state="connected",
            heartbeat_age_s=1.5,
            cpus=8,
            memory_total_bytes=16 * 10**9,
            memory_available_bytes=10 * 10**9,
            cards=(card,),
            engines=(t.EngineInfo(engine="sim", version="1", usable=True),),
        )

    async def node_builds(self, name: str) -> Sequence[t.BuildInfo]:
        """vLLM is being installed, llama.cpp is there."""
        await self.node(name)
        return [
            t.BuildInfo(engine="vllm", asked="0.30.0", state="0.30.0: being installed for 3 min"),
            t.BuildInfo(engine="llamacpp", asked="auto", version="10991"),
        ]

    async def ask_build(self, name: str, request: t.BuildRequest, *, actor: str) -> t.Result:
        """Says what was asked."""
        await self.node(name)
        self.calls.append(("ask_build", name, request.engine, request.version, actor))
        return t.Result(message=f"{name} installs {request.engine} {request.version}")

    async def check_engines(self, *, engine: str | None, node: str | None) -> Sequence[t.EngineVerdict]:
        """`vllm` is there on gpu1 and has lost a flag; `sim` is everywhere."""
        self.calls.append(("check_engines", engine, node))
        names = [(await self.node(node)).name] if node else self.node_names
        found = [EngineCheck(engine="sim", version="1", written=6, allowed=16)]
        lost = EngineCheck(engine="vllm", version="0.31.0", written=11, allowed=3, unknown_allowed=("--seed",))
        return [
            t.EngineVerdict(node=name, good=check.good, message=check.said(name), **msgspec.structs.asdict(check))
            for name in names
            for check in (*found, *((lost,) if name == "gpu1" else ()))
            if engine in (None, check.engine)
        ]

    async def sample(self, name: str) -> t.Result:
        """Says that it was asked."""
        await self.node(name)
        self.calls.append(("sample", name))
        return t.Result(message=f"{name} was asked for a fresh sample")

    async def cordon(self, name: str, on: bool, *, actor: str) -> t.Result:
        await self.node(name)
        self.calls.append(("cordon", name, on, actor))
        return t.Result(message=f"{name} is {'cordoned' if on else 'open'}; 1 replica runs on")

    async def models(self) -> Sequence[t.ModelInfo]:
        return list(self.catalog.values())

    async def model(self, name: str) -> t.ModelInfo:
        for info in self.catalog.values():
            if name in info.spec.names:
                return info
        raise NotFound(f"there is no model {name!r}")

    async def serve(self, request: t.ServeRequest, *, actor: str) -> t.ModelResult:
        """`sim:full` fits nowhere, `sim:away` meets a store that is away, `sim:broken` fails."""
        self.calls.append(("serve", request, actor))
        if request.source == "sim:full":
            raise CannotPlace("it needs 9 GB and 3.2 GB are missing on gpu0")
        if request.source == "sim:away":
            raise Unavailable("the database does not answer")
        if request.source == "sim:bug":
            raise RuntimeError("a secret of the inside")
        model = Model(
            name=request.name or "sim", source=request.source, aliases=request.aliases, scaling=request.scaling
        )
        return self._put(model, replace=False, state="failed" if request.source == "sim:broken" else "ready")

    async def add(self, model: Model, *, actor: str, replace: bool) -> t.ModelResult:
        self.calls.append(("add", model, actor, replace))
        return self._put(model, replace=replace, state="ready")

    def _put(self, model: Model, *, replace: bool, state: str) -> t.ModelResult:
        if model.name in self.catalog and not replace:
            raise Conflict(f"a model is called {model.name!r} already")
        ready = 0 if state == "failed" else model.scaling.min
        info = t.ModelInfo(
            name=model.name, state=state, ready=ready, wanted=model.scaling.min, source=model.source, spec=model
        )
        self.catalog[model.name] = info
        return t.ModelResult(message=f"{model.name} is served", model=info)

    async def remove(self, name: str, *, purge: bool, actor: str) -> t.Result:
        info = await self.model(name)
        self.calls.append(("remove", name, purge, actor))
        del self.catalog[info.name]
        return t.Result(message=f"{info.name} is removed")

    async def stop(self, name: str, *, actor: str) -> t.ModelResult:
        return await self._state("stop", name, "stopped", actor)

    async def start(self, name: str, *, actor: str) -> t.ModelResult:
        return await self._state("start", name, "ready", actor)

    async def _state(self, verb: str, name: str, state: str, actor: str) -> t.ModelResult:
        info = msgspec.structs.replace(await self.model(name), state=state)
        self.calls.append((verb, name, actor))
        self.catalog[info.name] = info
        return t.ModelResult(message=f"{info.name} is {state}", model=info)

    async def set_fallbacks(self, name: str, fallbacks: tuple[str, ...], *, actor: str) -> t.ModelResult:
        """Record the call."""
        self.calls.append(("fallbacks", name, fallbacks, actor))
        return t.ModelResult(message=f"{name} falls back to {', then '.join(fallbacks) or 'no other model'}")

    async def scale(self, name: str, minimum: int, maximum: int, *, actor: str) -> t.ModelResult:
        info = await self.model(name)
        self.calls.append(("scale", name, minimum, maximum, actor))
        return t.ModelResult(message=f"{info.name}: {minimum} to {maximum} replicas", model=info)

    async def replicas(self, model: str | None = None) -> Sequence[t.ReplicaInfo]:
        if model is not None:
            model = (await self.model(model)).name
        return [
            t.ReplicaInfo(
                id=f"{info.name}-1",
                model=info.name,
                profile="cpu",
                engine="sim",
                node="gpu0",
                state="ready",
                since_s=75,
            )
            for info in self.catalog.values()
            if info.state == "ready" and model in (None, info.name)
        ]

    async def restart(self, target: str, *, actor: str) -> t.Result:
        self.calls.append(("restart", target, actor))
        return t.Result(message=f"1 replica of {target} restarts")

    async def explain(self, name: str) -> t.Explanation:
        info = await self.model(name)
        card = t.CardVerdict(
            uuid="GPU-1", index=0, name="NVIDIA H100", fits=False, rule="held", message="qwen-1 holds it"
        )
        verdict = t.NodeVerdict(
            node="gpu0",
            profile="cpu",
            fits=False,
            rule="memory",
            missing_bytes=3_200_000_000,
            message="short",
            cards=(card,),
        )
        return t.Explanation(
            model=info.name, dry_run=False, message="3.2 GB are missing", need_bytes=9 * 10**9, verdicts=(verdict,)
        )

    async def explain_serve(self, request: t.ServeRequest) -> t.Explanation:
        return t.Explanation(model=request.name or "sim", dry_run=True, would_place="gpu1", message="it fits gpu1")

    async def join_token(self, request: t.JoinTokenCreate, *, actor: str) -> t.JoinToken:
        self.calls.append(("join_token", request, actor))
        token, url = "llmgw-join.secret.fingerprint", "here:9443"
        return t.JoinToken(
            token=token,
            url=url,
            command=f"llmgw agent join {token} {url}",
            expires=NOW + timedelta(minutes=request.minutes),
        )

    async def requests(self, query: RequestQuery) -> RequestPage:
        """Those of `lines`, the newest first, in one page; or what `request_log` has."""
        self.calls.append(("requests", query))
        if self.request_log is not None:
            return await self.request_log.page(query)
        found = [line for line in self.lines if query.matches(line)]
        return RequestPage(requests=tuple(sorted(found, key=lambda line: -line.at)[: query.limit]))

    async def request(self, request_id: str) -> RequestTold:
        """One of `lines`."""
        for line in self.lines:
            if line.id == request_id:
                return RequestTold(request=line, why=why.sentences(line))
        raise NotFound(f"no request {request_id!r} is in the log of this machine's routers")

    @asynccontextmanager
    async def logs(self, target: str, *, tail: int, follow: bool) -> AsyncIterator[AsyncIterator[str]]:
        if target == "nobody":
            raise NotFound("there is no replica and no node called 'nobody'")
        self.calls.append(("logs", target, tail, follow))
        self.open_logs += 1
        try:
            # A nursery, as a real reader has one: it has to be left in the task that entered it.
            async with trio.open_nursery() as nursery:
                yield _Lines(
                    [*self.log_lines[len(self.log_lines) - tail :], *self.more_lines], follow, self.fail_log_after
                )
                nursery.cancel_scope.cancel()
        finally:
            self.open_logs -= 1

    @asynccontextmanager
    async def _watching(
        self, subscription: w.Subscription, actor: str, role: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.open_watches += 1
        try:
            table = self.feed or LiveTable(w.TOPICS)
            wanted: dict[str, frozenset[str] | None] = dict.fromkeys(subscription.topics)
            cursor = Cursor(table, wanted, epoch=subscription.epoch, since=subscription.since)
            interval_s = subscription.interval_ms / 1000
            yield Reader(table, cursor, interval_s=interval_s, actor=actor, role=role)
        finally:
            self.open_watches -= 1

    def watch(
        self, subscription: w.Subscription, *, actor: str, role: str, hidden: frozenset[str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A feed in which nothing happens; the node `full` is one reader too many."""
        if subscription.nodes == ("full",):
            raise Unavailable("too many read")
        self.watched.append((subscription, actor, role, hidden))
        topics = tuple(topic for topic in subscription.topics if topic not in hidden)
        return self._watching(msgspec.structs.replace(subscription, topics=topics), actor, role)

    async def series(
        self,
        figures: Sequence[str],
        of: Sequence[Of],
        *,
        start: float | None,
        end: float | None,
        step_s: float | None,
    ) -> SeriesAnswer:
        """Of nodes and models it knows; the second point was not reported."""
        for each in of:
            if each.scope is Scope.NODE:
                await self.node(each.name)
        found = [check_figure(name, tuple(each.scope for each in of)) for name in figures]
        self.calls.append(("series", tuple(figures), tuple(map(str, of)), start, end, step_s))
        return SeriesAnswer(
            start=start or NOW.timestamp(),
            step_s=step_s or 5.0,
            since=NOW.timestamp(),
            series=tuple(
                Series(of=str(each), figure=figure.name, unit=figure.unit, points=(1.0, None, 3.5))
                for each in of
                for figure in found
            ),
        )

    async def history(self, model: str | None) -> w.History:
        name = "*" if model is None else (await self.model(model)).name
        return w.History(
            model=name,
            step_s=5.0,
            end=NOW.timestamp(),
            requests_per_s=(0.0, 1.5),
            errors_per_s=(0.0, 0.0),
            input_tokens_per_s=(0.0, 30.0),
            output_tokens_per_s=(0.0, 90.0),
            first_token_p50_ms=(None, 12.0),
            first_token_p95_ms=(None, 40.0),
            open_requests=(0, 2),
        )

    async def weights(self) -> Sequence[t.WeightsInfo]:
        return [
            t.WeightsInfo(
                source=source,
                id="w1",
                state="ready",
                done_bytes=98 * 10**6,
                total_bytes=98 * 10**6,
                files=1,
                models=("smollm2",) if source.endswith("needed.gguf") else (),
            )
            for source in self.sets
        ]

    async def fetch_weights(self, request: t.WeightsFetch, *, actor: str) -> t.Result:
        self.calls.append(("fetch_weights", request.source, actor))
        self.sets.append(request.source)
        return t.Result(message=f"{request.source}: the mirror looks the source up")

    async def verify_weights(self, request: t.WeightsVerify, *, actor: str) -> t.Result:
        if request.source not in self.sets:
            raise NotFound(f"{request.source} is not on the mirror")
        self.calls.append(("verify_weights", request.source, actor))
        return t.Result(message=f"{request.source}: checking 1 file, 98 MB; it is served meanwhile")

    async def orphans(self) -> t.WeightsOrphans:
        found = tuple(
            t.OrphanInfo(id=source.rpartition("/")[2], source=source, state="ready", bytes=98 * 10**6, files=1)
            for source in self.sets
            if not source.endswith("needed.gguf")
        )
        return t.WeightsOrphans(orphans=found, total_bytes=sum(orphan.bytes for orphan in found))

    async def remove_orphans(self, request: t.OrphansRemove, *, actor: str) -> t.Result:
        gone = [orphan.source for orphan in (await self.orphans()).orphans if orphan.id in request.ids]
        if not gone:
            raise NotFound("none of these sets is an orphan any more")
        self.calls.append(("remove_orphans", request.ids, actor))
        self.sets = [source for source in self.sets if source not in gone]
        return t.Result(message=f"{len(gone)} orphan removed: 98 MB freed on the mirror")

    async def remove_weights(self, source: str, *, actor: str) -> t.Result:
        if source not in self.sets:
            raise NotFound(f"{source} is not on the mirror")
        if source.endswith("needed.gguf"):
            raise Conflict("1 model needs it (smollm2)")
        self.calls.append(("remove_weights", source, actor))
        self.sets.remove(source)
        return t.Result(message=f"{source} removed: 98 MB freed on the mirror")

    async def settings(self) -> Sequence[t.Setting]:
        return [await self.setting(key) for key in sorted(self.values)]

    async def setting(self, key: str) -> t.Setting:
        if key not in self.values:
            raise NotFound(f"there is no setting {key!r}")
        return t.Setting(key=key, value=self.values[key], default=raw(2.0), doc="Seconds to connect to an engine.")

    async def set_setting(self, key: str, value: msgspec.Raw, *, actor: str) -> t.Result:
        await self.setting(key)
        try:
            seconds = msgspec.json.decode(value, type=float)
        except msgspec.MsgspecError:
            raise InvalidInput(f"{bytes(value).decode()} is not a number of seconds", field=key) from None
        self.calls.append(("set_setting", key, seconds, actor))
        self.values[key] = value
        return t.Result(message=f"{key} is {seconds:g} s")

    async def audit(self, since: datetime | None, limit: int) -> Sequence[t.AuditEntry]:
        self.calls.append(("audit", since, limit))
        before, after = {"min": 1, "max": 1}, {"min": 2, "max": 1}
        entry = t.AuditEntry(
            id=1, at=NOW, actor="unix:root", action="model.scale", target="qwen", before=before, after=after
        )
        return [entry][:limit]


class _Lines(AsyncIterator[str]):
    def __init__(self, lines: list[str], follow: bool, fail_after: int | None) -> None:
        self._lines = iter(lines)
        self._follow = follow
        self._left = fail_after

    async def __anext__(self) -> str:
        await trio.lowlevel.checkpoint()
        if self._left == 0:
            raise Unavailable("the node went away")
        if self._left is not None:
            self._left -= 1
        for line in self._lines:
            return line
        if self._follow:
            await trio.sleep_forever()
        raise StopAsyncIteration
