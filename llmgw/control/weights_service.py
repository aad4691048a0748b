"""Sets of weights on the mirror, for operators: which are there, who needs them, bring one, remove one nobody needs."""

from collections.abc import Iterable

import msgspec

from llmgw.api.types import Result, WeightsFetch, WeightsInfo, WeightsVerify
from llmgw.api.watch import WeightsRow
from llmgw.control.catalog import Catalog
from llmgw.control.leadership import Leadership
from llmgw.control.live_rows import models_by_source, weights_row
from llmgw.control.weights import sentence
from llmgw.control.weights_orphans import OrphanSets
from llmgw.control.weights_pace import limited, limited_fetch
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import Conflict, InvalidInput, NotFound
from llmgw.core.sources import SimSource, format_source, parse_source, shown_source
from llmgw.core.units import plural, size
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.service import Mirror
from llmgw.store import audit as stored_audit


class WeightsService:
    """What operators do with sets. Sources are compared in their canonical form."""

    def __init__(self, *, mirror: Mirror, catalog: Catalog, leadership: Leadership) -> None:
        self._mirror = mirror
        self._catalog = catalog
        self._leadership = leadership
        self._canonical: dict[str, str] = {}
        self.orphans = OrphanSets(mirror=mirror, leadership=leadership, sources=self._sources)

    def rows(self) -> dict[str, WeightsRow]:
        """Every set by its source; simulated models have none."""
        needed = models_by_source(self._sources())
        return {
            status.source: weights_row(self._timed(status), needed.get(status.source, ()), self._revision(status))
            for status in self._mirror.sets()
            if not status.source.startswith("sim:")
        }

    def list(self) -> tuple[WeightsInfo, ...]:
        """Every set, by source."""
        return tuple(
            WeightsInfo(
                source=row.source,
                id=row.id,
                state=row.state,
                done_bytes=row.done_bytes,
                total_bytes=row.total_bytes,
                files=row.files,
                message=row.message,
                models=row.models,
                revision=row.revision,
                phase=row.phase,
                checked_bytes=row.checked_bytes,
                verdict=row.verdict,
                intact=row.intact,
                in_place=row.in_place,
                fetched=row.fetched,
                used=row.used,
            )
            for row in self.rows().values()
        )

    def limit_of(self, progress: FetchProgress | None) -> str:
        """What limits the speed of weights on their way to a node; nothing where nothing does."""
        return limited_fetch(self._mirror, progress)

    def models_of(self, sources: Iterable[str]) -> set[str]:
        """Models that need one of the sources."""
        asked = set(sources)
        return {model for model, source in self._sources().items() if source in asked}

    async def fetch(self, request: WeightsFetch, *, actor: str) -> Result:
        """Have the set brought, or tried again at once; raises InvalidInput for what is no source."""
        source = self._parsed(request.source)
        held = self._mirror.status(source)
        if held is not None and held.state is SetState.READY:
            return Result(message=f"{shown_source(source)} is on the mirror already: {size(held.total_bytes)}")
        await self._leadership.lead(
            stored_audit.record, actor=actor, action="weights.fetch", target=shown_source(source)
        )
        status = self._mirror.ensure(source, now=True)
        said = sentence(status, self._mirror.downloads.bytes_s)
        return Result(message=f"{shown_source(source)}: {said or f'ready, {size(status.total_bytes)}'}")

    async def verify(self, request: WeightsVerify, *, actor: str) -> Result:
        """Have a set read back against its manifest; raises NotFound, or Conflict while it is not whole."""
        source = self._parsed(request.source)
        self._mirror.whole(source)
        target = shown_source(source)
        await self._leadership.lead(stored_audit.record, actor=actor, action="weights.verify", target=target)
        status = self._mirror.verify(source)
        what = f"{plural(status.files, 'file')}, {size(status.total_bytes)}"
        return Result(message=f"{target}: checking {what}; it is served meanwhile")

    async def remove(self, source: str, *, actor: str) -> Result:
        """Remove a set, ending its fetch; raises NotFound, or Conflict while a model needs it."""
        source = self._parsed(source)
        status = self._mirror.status(source)
        if status is None:
            raise NotFound(f"{shown_source(source)} is not on the mirror; `llmgw ctl weights list` shows what is")
        self._refuse_needed(source)
        before = {"state": status.state.value, "bytes": status.done_bytes}
        target = shown_source(source)
        await self._leadership.lead(
            stored_audit.record, actor=actor, action="weights.remove", target=target, before=before
        )
        self._refuse_needed(source)
        freed = await self._mirror.remove(source)
        return Result(message=f"{target} removed: {size(freed)} freed on the mirror")

    def _refuse_needed(self, source: str) -> None:
        if models := self.models_of([source]):
            named = ", ".join(sorted(models)[:5])
            raise Conflict(
                f"{plural(len(models), 'model')} {'needs' if len(models) == 1 else 'need'} it ({named}): "
                "remove the model first, or with its files"
            )

    def _parsed(self, source: str) -> str:
        parsed = parse_source(source)
        if isinstance(parsed, SimSource):
            raise InvalidInput("a simulated model has no weights", field="source")
        return format_source(parsed)

    def _sources(self) -> dict[str, str]:
        """Model → canonical source. Parsing is remembered: the catalog is asked every second while somebody reads."""
        given = {entry.model.name: entry.model.source for entry in self._catalog.entries() if entry.model.source}
        self._canonical = {source: self._canonical.get(source) or _canonical(source) for source in given.values()}
        return {name: self._canonical[source] for name, source in given.items()}

    def _timed(self, status: SetStatus) -> SetStatus:
        """With what limits its speed as the last word, while it comes and says nothing itself."""
        if status.state is not SetState.FETCHING or status.message:
            return status
        return msgspec.structs.replace(status, message=limited(self._mirror.downloads.bytes_s))

    def _revision(self, status: SetStatus) -> str:
        if status.state is not SetState.READY:
            return ""
        answer = self._mirror.answer(status.id)
        return answer.manifest.revision if answer is not None and answer.manifest is not None else ""


def _canonical(source: str) -> str:
    try:
        return format_source(parse_source(source))
    except InvalidInput:
        # A model that another version let in must not keep the others' sets from being shown.
        return source
