"""The key with which a model is tried, and where. What is typed is hidden, and kept in memory alone."""

from urllib.parse import urlsplit

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from console.client.access import Access, typed
from console.screens.dialog import Dialog
from console.signs import signs
from console.widgets.text_block import TextBlock


class ClientKeyForm(Dialog[Access]):
    """Dismisses with what to ask with, or none."""

    def __init__(self, url: str, access: Access | None) -> None:
        super().__init__("Key for the client API")
        self._access = access
        self._url = Input(value=url, max_length=300, id="client-url")
        kept = access is not None and not access.id
        self._key = Input(
            password=True, max_length=300, id="client-key", placeholder="the one used now" if kept else ""
        )
        self._note = TextBlock([[("kept until the console ends, in no file", "dim")]], wrapped=True)

    def compose(self) -> ComposeResult:
        with self.boxed() as box:
            box.border_subtitle = Content(f" enter next {signs().dot} esc cancel ")
            for label, line in (("key", self._key), ("address", self._url)):
                with Horizontal(classes="field"):
                    yield TextBlock([[(label, "dim")]])
                    yield line
            yield self._note

    def on_mount(self) -> None:
        """The key is what is missing."""
        for label in self.query(".field > TextBlock"):
            label.add_class("name")
        self._key.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Done when both make sense."""
        event.stop()
        key, url = self._key.value.strip(), self._url.value.strip().rstrip("/").removesuffix("/v1")
        kept = self._access.key if self._access and not self._access.id else ""
        wrong = _wrong(key or kept, url)
        if wrong:
            self._note.set_lines([[(wrong, "bad")]])
            (self._url if key or kept else self._key).focus()
            return
        self.dismiss(typed(self._access, url, key or kept))


def _wrong(key: str, url: str) -> str:
    if not key:
        return "a key is needed: `llmgw ctl keys create NAME` makes one"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "that is not a key: it has no spaces and nothing but ASCII"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the address is not one; as in http://gpu1:8080"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.path or parts.query:
        return "the address is the client API's, without a path; as in http://gpu1:8080"
    return ""
