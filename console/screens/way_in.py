"""How the playground comes by a key: one typed before, the demo's, a temporary one, or one that is typed now.

A temporary key is revoked when the page goes, also one that was still being made.
"""

import asyncio
import contextlib
from collections.abc import Callable

from console.client.access import Access, make_temporary, revoke_soon
from console.screens.client_key import ClientKeyForm
from console.screens.dialog import Question
from console.screens.view import View
from console.widgets.lines import Line
from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget


class WayIn:
    """The key of one page. In order: `begin` when mounted, `find` until there is one, `close` when the page goes."""

    def __init__(self, page: View, changed: Callable[[], None]) -> None:
        self.access: Access | None = None
        self.asked = False
        """Whether a key had to be asked for."""
        self._page = page
        self._changed = changed
        self._target = ServerTarget()

    def begin(self) -> None:
        """Keep to the cluster the page belongs to, whichever one is looked at later."""
        self._target = self._page.desk.admin.target

    def find(self) -> None:
        """Take a key that is there, or offer ways to one, once the cluster has told of itself."""
        if self.access is not None or self.asked or self._page.desk.seen().state.head is None:
            return
        self.access = self._page.desk.accesses.find(self._target, self._url)
        if self.access is None:
            self.offer()

    def offer(self) -> None:
        """Ask for a key, or for leave to make one."""
        self.asked = True
        desk, model = self._page.desk, self._page.place.key
        if desk.seen().state.role != "admin" or desk.read_only or not self._url:
            self.open_form()
            return
        alone: Line = [
            ("A temporary key is for ", "dim"),
            (model, "strong"),
            (" alone and ends with this page.", "dim"),
        ]
        lines: list[Line] = [[("A model is asked with an API key, as any client does.", "")], alone]
        choices = [("make", "Make a temporary key"), ("type", "Type a key"), ("no", "Cancel")]
        self._page.app.push_screen(Question(f"Try {model}", lines, choices), self._answered)

    def open_form(self) -> None:
        """Ask for a key and for where it is good."""
        url = self.access.url if self.access else self._url
        self._page.app.push_screen(ClientKeyForm(url, self.access), self._typed)

    def close(self) -> None:
        """The page has gone."""
        if self.access is None or not self.access.id:
            return
        app, toast = self._page.app, self._page.desk.toast

        def failed(sentence: str) -> None:
            with contextlib.suppress(RuntimeError):
                app.call_from_thread(toast, sentence, error=True)

        revoke_soon(self._target, self.access, failed)

    @property
    def _url(self) -> str:
        head = self._page.desk.seen().state.head
        return head.client_url if head else ""

    def _answered(self, choice: str | None) -> None:
        if choice == "make":
            self._page.run_worker(self._make(), group="key", exclusive=True)
        elif choice == "type":
            self.open_form()
        else:
            self._changed()

    async def _make(self) -> None:
        url, model, target = self._url, self._page.place.key, self._target
        making = asyncio.ensure_future(self._page.desk.admin.call(lambda api: make_temporary(api, url, model)))
        try:
            self._use(await asyncio.shield(making))
        except ClientError as error:
            self._page.desk.toast(error.message, error=True)
        except asyncio.CancelledError:
            # The page has gone while the key was being made: it goes as well.
            making.add_done_callback(lambda done: _revoke_made(target, done))
            raise

    def _typed(self, access: Access | None) -> None:
        if access is not None:
            self._page.desk.accesses.remember(self._target, access)
            self._use(access)
        self._changed()

    def _use(self, access: Access) -> None:
        if self.access is not None and self.access.id:
            revoke_soon(self._target, self.access, lambda _: None)
        self.access = access
        self._changed()


def _revoke_made(target: ServerTarget, made: "asyncio.Future[Access]") -> None:
    if not made.cancelled() and made.exception() is None:
        revoke_soon(target, made.result(), lambda _: None)
