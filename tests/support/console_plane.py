"""A control plane in memory behind the real admin app, whose live feed tells of what the console changed."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from llmgw.api import types as t
from llmgw.api import watch as w
from llmgw.control.live_table import LiveTable
from llmgw.core.errors import InvalidInput, Unavailable
from tests.support.admin_server import Running, running
from tests.support.fake_control import FakeControl
from tests.support.fleet_rows import NOW, model_row, small_rows

FULL_CONTEXT = 131_072
"""A context with which nothing fits anywhere."""


SUGGESTIONS = (
    t.Suggestion(engine="vllm", gpu_class="h100-80g", tp=2, nodes=1, message="vllm on 2 cards [/] of h100-80g (tp 2)"),
    t.Suggestion(engine="llamacpp", message="llamacpp does not fit in memory"),
)


@dataclass
class ConsolePlane(FakeControl):
    """Keeps what it was asked, and says it in the feed."""

    asked: list[t.ServeRequest] = field(default_factory=list)
    """Every `explain_serve`, in order."""

    @property
    def table(self) -> LiveTable:
        """The feed's rows."""
        assert self.feed is not None
        return self.feed

    def tell(self, topic: str, key: str, row: msgspec.Struct) -> None:
        """A row is another."""
        self.table.put(topic, key, row)
        self.table.announce()

    async def serve(self, request: t.ServeRequest, *, actor: str) -> t.ModelResult:
        """Served, and in the feed a moment later."""
        result = await super().serve(request, actor=actor)
        assert result.model is not None
        self.tell("models", result.model.name, model_row(result.model.name, "fetching", ready=0))
        return result

    async def explain_serve(self, request: t.ServeRequest) -> t.Explanation:
        """Fits gpu02 unless the context is FULL_CONTEXT; slots over 8 are refused, `sim:away` is not answered."""
        self.asked.append(request)
        if request.source == "sim:away":
            raise Unavailable("the leader does not answer")
        if (request.slots or 0) > 8:
            raise InvalidInput("9 slots are over the engine's 8", field="profiles[0].slots")
        full = request.context_length == FULL_CONTEXT
        return t.Explanation(
            model=request.name or "sim",
            dry_run=True,
            would_place=None if full else "gpu02",
            message="gpu02: 14.2 GB missing" if full else "goes to gpu02",
            suggestions=SUGGESTIONS,
            need_bytes=9 * 10**9,
            need_detail="weights 8 GB + KV 1 GB",
            verdicts=(
                t.NodeVerdict(
                    node="gpu[/]", profile="p", fits=False, rule="class", message="[@click=app.quit]other[/] cards"
                ),
                t.NodeVerdict(
                    node="gpu01",
                    profile="p",
                    fits=False,
                    rule="memory",
                    missing_bytes=3_200_000_000,
                    message="needs 9 GB, 5.8 GB free",
                ),
                t.NodeVerdict(
                    node="gpu02",
                    profile="p",
                    fits=not full,
                    rule="memory" if full else "",
                    missing_bytes=14_200_000_000 if full else 0,
                    message="fits: 9 GB on card 1",
                ),
            ),
        )

    async def explain(self, name: str) -> t.Explanation:
        """The next one goes to gpu02."""
        return t.Explanation(model=name, dry_run=False, would_place="gpu02", message="goes to gpu02")

    async def scale(self, name: str, minimum: int, maximum: int, *, actor: str) -> t.ModelResult:
        """Any name."""
        self.calls.append(("scale", name, minimum, maximum, actor))
        return t.ModelResult(message=f"{name}: {minimum} to {maximum} replicas")

    async def create_key(self, request: t.KeyCreate, *, actor: str) -> t.KeyCreated:
        """Made, and in the feed."""
        made = await super().create_key(request, actor=actor)
        self.tell("keys", made.id, w.KeyRow(id=made.id, name=made.name, models=request.models, created=NOW))
        return made

    async def revoke_key(self, key_id: str, *, actor: str) -> t.Result:
        """Any id of the feed."""
        self.calls.append(("revoke_key", key_id, actor))
        self.tell("keys", key_id, w.KeyRow(id=key_id, name="ci", created=NOW, revoked=NOW))
        return t.Result(message=f"{key_id} is refused here now, and everywhere within 30 s")

    async def cordon(self, name: str, on: bool, *, actor: str) -> t.Result:
        """Any node."""
        self.calls.append(("cordon", name, on, actor))
        return t.Result(message=f"{name} is {'cordoned' if on else 'open'}; 1 replica runs on")

    async def remove(self, name: str, *, purge: bool, actor: str) -> t.Result:
        """Any model."""
        self.calls.append(("remove", name, purge, actor))
        self.table.remove("models", name)
        self.table.announce()
        return t.Result(message=f"{name} is removed")


@contextlib.contextmanager
def console_plane(
    directory: Path,
    rows: Mapping[str, Mapping[str, msgspec.Struct]] | None = None,
    *,
    kind: type[ConsolePlane] = ConsolePlane,
) -> Iterator[tuple[ConsolePlane, Path]]:
    """A plane whose feed has `rows` (by default the small fleet's), and the socket it answers on."""
    with served_plane(directory, rows, kind=kind) as (plane, server):
        yield plane, server.socket


@contextlib.contextmanager
def served_plane(
    directory: Path,
    rows: Mapping[str, Mapping[str, msgspec.Struct]] | None = None,
    *,
    kind: type[ConsolePlane] = ConsolePlane,
) -> Iterator[tuple[ConsolePlane, Running]]:
    """The same plane with all the doors it answers at."""
    table = LiveTable(w.TOPICS)
    for topic, some in (rows or small_rows()).items():
        table.publish(topic, some)
    plane = kind(feed=table)
    with running(directory, plane) as server:
        yield plane, server
