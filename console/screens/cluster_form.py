"""A name for a cluster: its server, and the file with its token when it is reached over HTTP."""

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from console.screens.dialog import Dialog
from console.signs import signs
from console.widgets.text_block import TextBlock
from llmgw.api.problems import Usage
from llmgw.api.targets import parse_server

MAX_NAME_CHARS = 60


class ClusterForm(Dialog[tuple[str, str, str]]):
    """Dismisses with name, server and token file, or none."""

    def __init__(self, name: str, server: str) -> None:
        super().__init__("Add a cluster")
        self._name_line = Input(value=name, max_length=MAX_NAME_CHARS, id="ctx-name")
        self._server = Input(value=server, max_length=500, id="ctx-server")
        self._token = Input(placeholder="none for a socket", max_length=500, id="ctx-token")
        self._note = TextBlock(
            [[("server: unix:/path/admin.sock, or http://HOST:PORT with a token", "dim")]], wrapped=True
        )

    def compose(self) -> ComposeResult:
        with self.boxed() as box:
            box.border_subtitle = Content(f" enter next {signs().dot} esc cancel ")
            for label, line in (("name", self._name_line), ("server", self._server), ("token file", self._token)):
                with Horizontal(classes="field"):
                    yield TextBlock([[(label, "dim")]])
                    yield line
            yield self._note

    def on_mount(self) -> None:
        """The name first."""
        for label in self.query(".field > TextBlock"):
            label.add_class("name")
        self._name_line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The next line, or done when all make sense."""
        event.stop()
        if event.input is self._name_line:
            self._server.focus()
        elif event.input is self._server:
            self._token.focus()
        else:
            self._done()

    def _done(self) -> None:
        name, server, token = (line.value.strip() for line in (self._name_line, self._server, self._token))
        if not name or not name.isprintable() or " " in name:
            self._refuse("a name without spaces is needed", self._name_line)
            return
        try:
            parse_server(server, source="server")
        except Usage as error:
            self._refuse(error.message, self._server)
            return
        self.dismiss((name, server, token))

    def _refuse(self, sentence: str, line: Input) -> None:
        self._note.set_lines([[(sentence, "bad")]])
        line.focus()
