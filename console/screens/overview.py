"""Overview: what the cluster does, what needs somebody, and where the work is. Every line leads on by one key."""

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult

from console.commands import Command
from console.figures import plural, spark
from console.places import Place, Subject
from console.screens.models import SPEC as MODELS
from console.screens.models import queued_words
from console.screens.no_match import keys_of, nothing_matches
from console.screens.overview_tiles import tiles
from console.screens.view import View, counted, row_of, title, waiting_lines
from console.signs import signs
from console.state.attention import Problem, Severity, all_well, problems
from console.state.cluster import ALL, ClusterState
from console.state.diff import Diff
from console.state.filter import parse_filter
from console.state.touched import nodes_moved, stirred, touched_nodes
from console.widgets.columns import Column, Seen, TableSpec
from console.widgets.note import Note
from console.widgets.paint import Span
from console.widgets.table import Table
from console.widgets.tiles import MOST_POINTS, Tiles
from console.widgets.titles import set_title
from console.widgets.workmap import WorkMap
from llmgw.api.actions import Target
from llmgw.api.watch import ModelRow

RECENT_POINTS = 90
"""Bars of a model's line at most."""
RECENT_EACH = 5
"""Samples in each of its bars: a bar every 10 s says as much as one every 2 s, and the line moves a fifth as often."""
_TONES = {Severity.BROKEN: "bad", Severity.WARNING: "warn", Severity.COMING: "info"}
_COMMAND_KEYS = {"explain": "e explain", "logs": "l logs", "open": "enter open"}


def _mark(problem: Problem) -> Span:
    marks = {Severity.BROKEN: signs().broken, Severity.WARNING: signs().warning, Severity.COMING: signs().coming}
    return (marks[problem.severity], _TONES[problem.severity])


def _sentence(problem: Problem, _: Seen) -> Span:
    return (problem.sentence, "")


def _next(problem: Problem) -> list[Span]:
    key, space, label = _COMMAND_KEYS.get(problem.command, "").partition(" ")
    return [(key, "key"), (space + label, "dim")]


SPEC: TableSpec[Problem] = TableSpec(
    columns=(
        Column(key="mark", title="", width=1, cell=lambda problem, _: _mark(problem)),
        Column(key="name", title="", width=12, grow=1, most=22, cell=lambda problem, _: (problem.name, "strong")),
        Column(key="sentence", title="", width=24, grow=6, cell=_sentence, whole=_sentence),
        Column(key="next", title="", width=10, align="right", priority=1, cell=lambda problem, _: _next(problem)),
    ),
    words=lambda problem: f"{problem.name} {problem.sentence}",
    facts=lambda problem: {"kind": problem.target.value},
    markable=False,
    in_order=True,
)


def _recent(model: ModelRow, seen: Seen) -> Span:
    means = seen.history.traffic_means("tokens", RECENT_POINTS, model.name, each=RECENT_EACH)
    return (spark(means, RECENT_POINTS), "spark")


_SHOWN = ("name", "state", "ready", "requests", "tokens", "first", "open")
BUSIEST: TableSpec[ModelRow] = replace(
    MODELS,
    columns=(
        *(column for column in MODELS.columns if column.key in _SHOWN),
        Column(
            key="recent",
            title="tokens/s, last minutes",
            width=24,
            grow=4,
            most=RECENT_POINTS,
            priority=4,
            newest=True,
            cell=_recent,
        ),
    ),
    sort="tokens",
    descending=True,
    markable=False,
)


class Overview(View):
    """Tiles, needs attention, work map."""

    NOUN: ClassVar[str] = "needs attention"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._tiles = Tiles()
        self._table: Table[Problem] = Table(SPEC, header=False, id="attention")
        self._note = Note()
        self._map = WorkMap()
        self._busiest: Table[ModelRow] = Table(BUSIEST, quiet=True, id="busiest")
        self._walks_models = False
        """Whether the keys are, or were last, in the list of models."""
        self._problems: dict[str, Problem] = {}
        self._state = ClusterState()
        """What is shown."""

    def compose(self) -> ComposeResult:
        self._table.add_class("panel")
        self._map.add_class("panel")
        self._map.border_title = title("GPU work")
        yield self._tiles
        yield self._table
        yield self._note
        self._busiest.add_class("panel")
        yield self._map
        yield self._busiest

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """What the diff touches."""
        before, self._state = self._state, seen.state
        if diff is None or stirred(before, seen.state, diff):
            self._list_problems(seen)
        # A cluster without nodes is heard for the first time by a change that touches none.
        if diff is None or before.heard != seen.state.heard or diff.touches("nodes", "figures", "replicas"):
            self._draw_map(before, seen, diff)
        if diff is None or diff.touches("models", "replicas", "traffic"):
            self._list_models(seen, diff)
        self._tiles.set_tiles(tiles(seen, MOST_POINTS))

    def tick(self, seen: Seen) -> None:
        """Ages in sentences, and of nodes that are not heard."""
        self._list_problems(seen)
        self._map.tick(seen.now)

    def _list_problems(self, seen: Seen) -> None:
        state = seen.state
        found = problems(state, seen.now, seen.history.rates) if state.heard else ()
        rows = {problem.id: problem for problem in found}
        changed = {id_ for id_ in rows.keys() | self._problems.keys() if rows.get(id_) != self._problems.get(id_)}
        self._problems = rows
        worst = min((problem.severity for problem in found), default=Severity.COMING)
        self._table.set_class(bool(found) and worst < Severity.COMING, "-trouble")
        if changed or not self._table.shown:
            self._table.update_rows(rows, seen, changed)
        self._say_problems(state)
        self._fit(len(rows))
        self._say_note()

    def _say_problems(self, state: ClusterState) -> None:
        """How many there are, and what stands where none is shown."""
        table, filter_ = self._table, self._table.filter_text
        if table.total and not table.shown:
            table.set_notice(nothing_matches(filter_, keys_of(self._problems.values(), table.spec.facts)))
        else:
            table.set_notice(_all_well(state) if state.heard else waiting_lines(self.desk))
        count_ = sum(problem.severity < Severity.COMING for problem in self._problems.values())
        coming = len(self._problems) - count_
        facts = [(str(count_), "bold $error") if count_ else ("nothing" if state.heard else "", "$success")]
        facts += [(f"{coming} on the way", "$tone-info")] if coming else []
        shown = f"/{filter_} shows {counted(len(table.shown), table.total)}" if filter_ else ""
        table.set_title(title(self.NOUN, *facts, (shown, "bold $warning")))

    def _say_note(self) -> None:
        """The sentence under the cursor where its line has no room for it."""
        self._note.tell(self._table, SPEC, self._chosen(), self.desk.seen())

    def _list_models(self, seen: Seen, diff: Diff | None) -> None:
        state = seen.state
        keys = None if diff is None else diff.keys("models", "traffic")
        self._busiest.display = bool(state.models)
        self._map.set_class(bool(state.models), "-beside")
        self._busiest.update_rows(state.models, seen, keys)
        self._say_models(state)

    def _say_models(self, state: ClusterState) -> None:
        table, filter_ = self._busiest, self._busiest.filter_text
        if not table.shown:
            table.set_notice(nothing_matches(filter_, keys_of(state.models.values(), table.spec.facts)))
        traffic = state.traffic.get(ALL)
        under_way = plural(traffic.open_requests, "open request") if traffic is not None else ""
        queued = queued_words(traffic) if traffic is not None else ""
        facts = [(counted(len(table.shown), table.total), "bold"), (f"/{filter_}" if filter_ else "", "bold $warning")]
        facts += [(under_way, ""), (queued, "$warning"), ("busiest first", "$tone-dim")]
        table.set_title(title("models", *facts))

    def _fit(self, rows: int) -> None:
        height = max(2, rows) + 2 - (self.app.size.height < 30)
        if self._table.styles.height is None or self._table.styles.height.value != height:
            self._table.styles.height = height

    def _draw_map(self, before: ClusterState, seen: Seen, diff: Diff | None) -> None:
        state = seen.state
        self._map.set_notice([] if state.heard else waiting_lines(self.desk))
        if diff is None:
            self._map.set_state(state, seen.now)
        else:
            changed = touched_nodes(before, state, diff)
            self._map.set_state(state, seen.now, changed, moved=nodes_moved(before, state, diff))
        self._name_map(state)

    def _name_map(self, state: ClusterState) -> None:
        load = state.load
        if not state.heard:
            set_title(self._map, title("GPU work"))
        elif load.cards:
            facts = [
                (f"{load.cards:,} cards", ""),
                (f"{load.at_work:,} at work", ""),
                (f"{load.idle:,} held, idle", ""),
                (f"{load.unheard:,} held, not heard", "$warning") if load.unheard else ("", ""),
            ]
            facts += [(f"{load.free:,} free", ""), (f"{load.worn} worn", "bold $warning") if load.worn else ("", "")]
            set_title(self._map, title("GPU work", *facts))
        else:
            set_title(self._map, title("nodes", (f"{len(state.nodes):,}", "bold"), ("no GPUs", "$tone-dim")))

    # -- keys

    def _chosen(self) -> Problem | None:
        return self._problems.get(self._table.cursor_key or "")

    @property
    def _walked(self) -> Table[Problem] | Table[ModelRow]:
        """The list that has the keys, or had them when a line or a page took them."""
        return self._busiest if self._walks_models and self._busiest.display else self._table

    def subjects(self) -> tuple[Subject, ...]:
        """Whose problem the cursor is on, or which model."""
        if self._walked is self._busiest:
            key = self._busiest.cursor_key
            return (Subject(target=Target.MODEL, key=key),) if key is not None else ()
        problem = self._chosen()
        if problem is None or problem.target == Target.CLUSTER:
            return ()
        return (Subject(target=problem.target, key=problem.key),)

    def commands(self) -> list[Command]:
        """Opening, and the way between the two lists."""
        found: list[Command] = []
        if self._busiest.display:
            other = self.NOUN if self._walked is self._busiest else "models"
            found.append(Command(id="other", label=other, key="tab", group="overview", footer=88, run=self._other_list))
        if self.subjects():
            open_ = self._walked.action_open
            found.append(Command(id="open", label="open", key="enter", group="overview", footer=90, run=open_))
        return found

    def _other_list(self) -> None:
        self._walk(models=self._walked is not self._busiest)
        self.give_keys(self._walked)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Another list, other actions."""
        self._walk(models=event.widget is self._busiest)
        self.desk.refresh_frame()

    def _walk(self, *, models: bool) -> None:
        """This list is walked: it keeps its row while a line or a page has the keys, and the other shows the first."""
        self._walks_models = models
        self._busiest.quiet = not models
        self._busiest.repaint_rows()

    def focus_keys(self) -> None:
        """The list that had the keys has them again."""
        self.give_keys(self._walked)

    def filter_text(self) -> str:
        """The filter of the list that has the keys."""
        return self._walked.filter_text

    def set_filter(self, text: str) -> bool:
        """Rows of that list that match."""
        self._walked.set_filter(parse_filter(text))
        state = self.desk.seen().state
        self._say_problems(state)
        self._say_models(state)
        self._say_note()
        return True

    def escape(self) -> bool:
        """The filter."""
        return bool(self.filter_text()) and self.set_filter("")

    def document(self, state: ClusterState) -> tuple[Subject, object] | None:
        """The row the problem is about."""
        subjects = self.subjects()
        row = row_of(state, subjects[0]) if subjects else None
        return None if row is None else (subjects[0], row)

    def copy_text(self) -> str:
        """The sentence."""
        problem = self._chosen()
        if self._walked is self._busiest or problem is None:
            return super().copy_text()
        return f"{problem.name}: {problem.sentence}"

    def on_table_moved(self) -> None:
        """Another problem, other actions."""
        self._say_note()
        self.desk.refresh_frame()

    def on_resize(self) -> None:
        """Another width has room for another part of a sentence."""
        self.call_after_refresh(self._say_note)

    def on_table_opened(self, event: Table.Opened) -> None:
        """What the problem is about."""
        event.stop()
        problem = None if self._walked is self._busiest else self._chosen()
        for subject in self.subjects():
            self.open_subject(subject, row=problem.row if problem is not None else "")


def _all_well(state: ClusterState) -> list[list[Span]]:
    if not state.nodes:
        begin: list[Span] = [("No node has joined yet. ", ""), ("4", "key"), (" and then ", ""), ("n", "key")]
        return [[*begin, (" lets one join.", "")]]
    if not state.models:
        return [[("No model is served yet. ", ""), ("s", "key"), (" serves one.", "")]]
    return [[(f"{signs().good} ", "good"), (all_well(state), "dim")]]
