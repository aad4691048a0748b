"""Weights: the sets on the mirror, how far each is, and who needs it. What nobody needs is an orphan and may go."""

from typing import ClassVar

from console.commands import Command
from console.figures import percent, plural, size
from console.places import Place, Subject
from console.screens.states import state_cell, state_rank
from console.screens.table_view import TableView
from console.signs import signs
from console.state.cluster import ClusterState
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.paint import Span, progress_spans
from llmgw.api.actions import Target
from llmgw.api.watch import WeightsRow

BAR_COLUMNS = 8
UNDER_WAY = ("resolving", "fetching", "checking")
MAX_NAMES = 3
"""Models a refusal names; the others are counted."""


def progress_cell(row: WeightsRow, _: Seen) -> Cell:
    """A bar and a percentage while it comes or is read back, what is there otherwise."""
    if row.state == "ready" and not row.phase:
        return (size(row.total_bytes or row.done_bytes), "")
    if row.total_bytes <= 0:
        return (size(row.done_bytes), "") if row.done_bytes else (signs().dash, "dim")
    share = min(1.0, (row.checked_bytes if row.phase else row.done_bytes) / row.total_bytes)
    bar = progress_spans(share, BAR_COLUMNS)
    if row.state == "failed":
        bar = [(text, "dim") for text, _ in bar]
    return [*bar, (f" {percent(100 * share):>4}", "strong"), (f" of {size(row.total_bytes)}", "dim")]


def _missing(row: WeightsRow) -> float:
    """Bytes still to come, so that what is under way sorts together."""
    return float(max(0, row.total_bytes - row.done_bytes)) if row.state != "ready" else -1.0


def _needed(row: WeightsRow, _: Seen) -> Cell:
    if not row.models:
        return [(f"{signs().warning} ", "warn"), ("orphan", "warn")]
    return (", ".join(row.models), "")


def _last_word(row: WeightsRow, _: Seen) -> Cell:
    """Why it failed or waits, else what the last check on demand found."""
    if row.message:
        return (row.message, "bad" if row.state == "failed" else "dim")
    return (row.verdict, "warn" if row.intact is False else "dim")


def _source(row: WeightsRow, _: Seen) -> Cell:
    spans: list[Span] = [(row.source, "strong")]
    return [*spans, (f" @{row.revision[:12]}", "dim")] if row.revision else spans


SPEC: TableSpec[WeightsRow] = TableSpec(
    columns=(
        Column(key="source", title="source", width=22, grow=3, most=72, cell=_source, sort=lambda row, _: row.source),
        Column(
            key="state",
            title="state",
            width=11,
            cell=lambda row, _: state_cell(row.phase or row.state),
            sort=lambda row, _: state_rank(row.phase or row.state),
        ),
        Column(
            key="progress",
            title="on the mirror",
            width=24,
            cell=progress_cell,
            sort=lambda row, _: _missing(row),
            descending=True,
        ),
        Column(
            key="files",
            title="files",
            width=5,
            align="right",
            priority=3,
            cell=lambda row, _: (f"{row.files:,}", "dim"),
            sort=lambda row, _: row.files,
            descending=True,
        ),
        Column(
            key="models",
            title="needed by",
            width=10,
            grow=2,
            most=36,
            priority=1,
            cell=_needed,
            sort=lambda row, _: row.models[0] if row.models else "",
        ),
        Column(
            key="message",
            title="last word",
            width=10,
            grow=5,
            priority=2,
            cell=_last_word,
        ),
    ),
    words=lambda row: " ".join(
        (row.source, row.id, row.state, row.phase, row.message, row.verdict, row.revision, *(row.models or ("orphan",)))
    ),
    facts=lambda row: {
        "state": row.state,
        "model": " ".join(row.models),
        "source": row.source,
    },
    sort="state",
)


class Weights(TableView[WeightsRow]):
    """Sets on the mirror."""

    NOUN: ClassVar[str] = "weights"
    TARGET: ClassVar[Target] = Target.WEIGHTS
    TOPIC: ClassVar[str] = "weights"
    EMPTY: ClassVar[tuple[str, str]] = (
        "The mirror holds no weights: they come when a model needs them.",
        "f fetches some before that",
    )

    def table_spec(self) -> TableSpec[WeightsRow]:
        """Its columns."""
        return SPEC

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How much there is, comes, failed, and is needed by nobody."""
        rows = state.weights.values()
        coming = [row for row in rows if row.state in UNDER_WAY]
        failed = sum(row.state == "failed" for row in rows)
        orphans = [row for row in rows if not row.models]
        missing = sum(max(0, row.total_bytes - row.done_bytes) for row in coming)
        held = size(sum(row.done_bytes or (row.total_bytes if row.state == "ready" else 0) for row in rows))
        spare = size(sum(row.done_bytes for row in orphans))
        return [
            (f"{held} on the mirror" if state.weights else "", ""),
            (f"{len(coming)} coming" + (f", {size(missing)} to go" if missing else "") if coming else "", "$tone-info"),
            (f"{failed} failed" if failed else "", "bold $error"),
            (f"{plural(len(orphans), 'orphan')} with {spare}" if orphans else "", "$warning"),
        ]

    def commands(self) -> list[Command]:
        """What is needed cannot be removed, and its key says by whom."""
        found = super().commands()
        keys = self.table.chosen()
        needed = {model for key in keys if (row := self._row(key)) is not None for model in row.models}
        if needed:
            found.append(Command(id="weights.needed", label="who needs it", key="D", group=self.NOUN, run=self._refuse))
        return found

    def _row(self, key: str) -> WeightsRow | None:
        return self.desk.seen().state.weights.get(key)

    def _refuse(self) -> None:
        models = sorted({m for key in self.table.chosen() if (row := self._row(key)) is not None for m in row.models})
        named = ", ".join(models[:MAX_NAMES]) + (f" and {len(models) - MAX_NAMES} more" if models[MAX_NAMES:] else "")
        need = "needs" if len(models) == 1 else "need"
        self.desk.toast(
            f"{plural(len(models), 'model')} {need} it ({named}): remove the model first, or with its files"
        )

    def open_subject(self, subject: Subject, *, row: str = "") -> None:
        """The model that needs it, where there is one; else all of it, as YAML."""
        weights = self._row(subject.key)
        if weights is not None and len(weights.models) == 1 and weights.models[0] in self.desk.seen().state.models:
            super().open_subject(Subject(target=Target.MODEL, key=weights.models[0]))
        else:
            self.desk.go(Place(view="yaml", subject=subject))
