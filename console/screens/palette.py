"""The palette: every command possible here and now, found by typing a part of its name."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input

from console.commands import Command, key_name
from console.screens.dialog import Dialog
from console.state.cluster import ClusterState
from console.state.filter import parse_filter
from console.state.history import History
from console.widgets.columns import Column, Seen, TableSpec
from console.widgets.table import Table

_NOT_LISTED = ("escape", "palette", "mark")

SPEC: TableSpec[Command] = TableSpec(
    columns=(
        Column(
            key="label",
            title="",
            width=20,
            grow=2,
            most=34,
            cell=lambda command, _: (command.label, "warn" if command.dangerous else "strong"),
        ),
        Column(key="group", title="", width=12, grow=1, most=26, cell=lambda command, _: (command.group, "info")),
        Column(key="help", title="", width=10, grow=2, priority=1, cell=lambda command, _: (command.help, "dim")),
        Column(key="key", title="", width=5, align="right", cell=lambda command, _: (key_name(command.key), "key")),
    ),
    words=lambda command: f"{command.label} {command.group} {command.help} {command.id}",
    markable=False,
    in_order=True,
)


class Palette(Dialog[str]):
    """Dismisses with the id of the command chosen, or none."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__("everything possible here and now")
        self._rows = {c.id: c for c in commands if c.id not in _NOT_LISTED}
        self._table: Table[Command] = Table(SPEC, header=False)

    def compose(self) -> ComposeResult:
        with self.boxed(tall=True):
            yield Input(placeholder="type a part of it", max_length=100)
            yield self._table

    def on_mount(self) -> None:
        """All of them."""
        self._table.can_focus = False
        self._table.set_notice([[("nothing is called that", "dim")]])
        self._table.update_rows(self._rows, Seen(state=ClusterState(), history=History(), now=0.0))
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Those that match."""
        event.stop()
        self._table.set_filter(parse_filter(event.value))
        self._table.action_jump(0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The one under the cursor."""
        event.stop()
        self._table.action_open()

    def on_table_opened(self, event: Table.Opened) -> None:
        """Chosen."""
        event.stop()
        self.dismiss(event.key)

    def on_key(self, event: events.Key) -> None:
        """The cursor moves while the line has the keys."""
        moves = {"up": -1, "down": 1}
        if event.key in moves:
            self._table.action_move(moves[event.key])
        elif event.key in ("pageup", "pagedown"):
            self._table.action_page(-1 if event.key == "pageup" else 1)
        else:
            return
        event.stop()
        event.prevent_default()
