"""A set as the mirror knows it: where it stands, how far it is, and which tasks work on it."""

from dataclasses import dataclass, field

import trio

from llmgw.core.catalog import ModelFacts
from llmgw.core.sources import Source, format_source
from llmgw.core.weights import Manifest, SetState, SetStatus
from llmgw.mirror.verify import Verification


@dataclass
class Entry:
    """A set and its way here."""

    source: Source
    id: str
    state: SetState = SetState.RESOLVING
    message: str = ""
    manifest: Manifest | None = None
    facts: ModelFacts | None = None
    done: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    reported: int = 0
    failures: int = 0
    retry_at: float = 0.0
    fetched: float | None = None
    used: float | None = None
    check: Verification | None = None
    """The last check on demand, on its way or over."""
    scope: trio.CancelScope | None = None
    """Open while a task works on it."""
    idle: trio.Event = field(default_factory=trio.Event)
    """Set when that task has ended."""

    @property
    def name(self) -> str:
        """Its canonical source."""
        return format_source(self.source)

    @property
    def in_place(self) -> bool:
        """Whether it is served from where an operator put it."""
        return self.manifest is not None and "root" in self.manifest.origin

    @property
    def missing_bytes(self) -> int:
        """Bytes still to come of the files whose sizes are known."""
        return sum(max(0, total - self.done.get(name, 0)) for name, total in self.totals.items())

    def status(self) -> SetStatus:
        """Where it stands, for others."""
        manifest = self.manifest
        files = len(manifest.files) if manifest else 0
        if self.state is SetState.READY:
            total = manifest.total_bytes if manifest else 0
            done = total
        else:
            total = sum(self.totals.values()) if files and len(self.totals) == files else 0
            # Of the whole set and never going back, though an emptied part begins anew.
            self.reported = max(self.reported, sum(self.done.values()))
            done = min(self.reported, total) if total else self.reported
        checking = self.check is not None and self.check.running
        return SetStatus(
            id=self.id,
            source=self.name,
            state=self.state,
            done_bytes=done,
            total_bytes=total,
            message=self.message,
            files=files,
            phase="checking" if checking else "",
            checked_bytes=sum(self.check.done.values()) if self.check is not None and checking else 0,
            verdict=self.check.verdict if self.check is not None else "",
            intact=self.check.intact if self.check is not None else None,
            in_place=self.in_place,
            fetched=self.fetched,
            used=self.used,
        )
