"""Clusters one has a name for: go to another, remember one, forget one. The profiles file is `ctl`'s too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from console.commands import Command
from console.places import Place, Subject
from console.screens.dialog import Question
from console.screens.table_view import TableView
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.widgets.columns import Column, Seen, TableSpec
from console.widgets.table import Table
from llmgw.api.actions import Target
from llmgw.api.problems import Usage

if TYPE_CHECKING:
    from console.app import Console


STARTED = "started with, not in the file"
"""What stands beside a cluster that the console knows from its start alone."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A row."""

    name: str
    server: str
    token_file: str
    here: bool
    """Whether it is the one looked at."""
    note: str = ""


SPEC: TableSpec[Known] = TableSpec(
    columns=(
        Column(key="here", title="", width=2, cell=lambda row, _: (signs().live if row.here else "", "good")),
        Column(
            key="name",
            title="cluster",
            width=14,
            grow=1,
            most=30,
            cell=lambda row, _: (row.name, "strong"),
            sort=lambda row, _: row.name.casefold(),
        ),
        Column(
            key="server",
            title="server",
            width=20,
            grow=3,
            cell=lambda row, _: (row.server, ""),
            sort=lambda row, _: row.server,
        ),
        Column(
            key="token",
            title="token file",
            width=14,
            wish=len(STARTED),
            grow=1,
            priority=2,
            cell=lambda row, _: (row.token_file or row.note, "dim"),
        ),
    ),
    words=lambda row: f"{row.name} {row.server}",
    markable=False,
    sort="name",
)


class Clusters(TableView[Known]):
    """The profiles file as a table."""

    NOUN: ClassVar[str] = "clusters"
    TARGET: ClassVar[Target] = Target.CLUSTER
    EMPTY: ClassVar[tuple[str, str]] = ("No cluster has a name yet.", "n gives one")

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._problem = ""

    @property
    def console(self) -> "Console":
        """Which cluster is looked at is the console's."""
        return cast("Console", self.app)

    def table_spec(self) -> TableSpec[Known]:
        """Name and server."""
        return SPEC

    def rows(self, state: ClusterState) -> Mapping[str, Known]:
        """Those of the file, and of those without a name there the one looked at and the one started with."""
        contexts, here = self.console.contexts, self.console.context
        self._problem = ""
        try:
            profiles = contexts.profiles()
        except Usage as error:
            self._problem = error.message
            profiles = {}
        rows = {
            name: Known(name=name, server=profile.server, token_file=profile.token_file, here=name == here)
            for name, profile in profiles.items()
        }
        for name, target in contexts.started().items():
            started = Known(name=name, server=str(target), token_file="", here=name == here, note=STARTED)
            rows.setdefault(name, started)
        if here not in rows:
            rows[here] = Known(name=here, server=self.console.where, token_file="", here=True, note="not in the file")
        return rows

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """Nothing here comes from the feed."""
        return frozenset()

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """What is wrong with the file."""
        return [(self._problem, "$error")]

    def tick(self, seen: Seen) -> None:
        """No ages here."""

    def subjects(self) -> tuple[Subject, ...]:
        """Nothing the registry's actions are about."""
        return ()

    def document(self, state: ClusterState) -> None:
        """Nothing of the cluster's."""

    def copy_text(self) -> str:
        """The server."""
        key = self.table.cursor_key
        row = self.rows(self.desk.seen().state).get(key) if key else None
        return row.server if row else ""

    def commands(self) -> list[Command]:
        """Going, remembering, forgetting."""
        name = self.table.cursor_key
        found = [Command(id="ctx.add", label="add a cluster", key="n", group="clusters", footer=80, run=self.add)]
        if name is None:
            return found
        found.append(Command(id="open", label="go there", key="enter", group="clusters", footer=90, run=self.go))
        if self.console.contexts.in_file(name):
            forget = Command(id="ctx.remove", label="forget", key="D", group="clusters", footer=70, run=self.forget)
            found.append(forget)
        return found

    def on_table_opened(self, event: Table.Opened) -> None:
        """Go to the cluster under the cursor."""
        event.stop()
        self.go()

    def go(self) -> None:
        """Look at the cluster under the cursor."""
        name = self.table.cursor_key
        if name is None or (name == self.console.context and not self.console.contexts.in_file(name)):
            return
        try:
            target = self.console.contexts.find(name)
        except Usage as error:
            self.desk.toast(error.message, error=True)
        else:
            self.console.change_cluster(target)

    def add(self) -> None:
        """Remember one."""
        from console.screens.cluster_form import ClusterForm

        here = self.console.context
        unnamed = not self.console.contexts.in_file(here)
        server = self.console.where if unnamed else ""
        self.app.push_screen(ClusterForm(here if unnamed else "", server), self._added)

    def _added(self, added: tuple[str, str, str] | None) -> None:
        if added is None:
            return
        try:
            self.console.contexts.add(*added)
        except Usage as error:
            self.desk.toast(error.message, error=True)
            return
        self.desk.toast(f"{added[0]} means {added[1]}")
        self._anew()

    def forget(self) -> None:
        """Take the one under the cursor out of the file; the cluster itself does not hear of it."""
        name = self.table.cursor_key
        if name is None:
            return

        def answered(choice: str | None) -> None:
            if choice != "yes":
                return
            try:
                self.console.contexts.remove(name)
            except Usage as error:
                self.desk.toast(error.message, error=True)
                return
            self.desk.toast(f"{name} is forgotten; the cluster itself runs on")
            self._anew()

        lines = [[(name, "strong")], [], [("Only its name goes, from the profiles file; the cluster runs on.", "")]]
        self.app.push_screen(Question("Forget", lines, [("no", "Cancel"), ("yes", "Forget")]), answered)

    def _anew(self) -> None:
        self.update(self.desk.seen(), None)
        self.desk.refresh_frame()
