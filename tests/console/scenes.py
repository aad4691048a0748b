"""Every view and page of the console, each in the states a person meets it in, without network or clock."""

import asyncio
import contextlib
import copy
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import date
from typing import TypeVar, cast

from textual.pilot import Pilot
from textual.widgets import Input

from console.app import Console, Ending
from console.client.access import Access
from console.client.api import Admin
from console.client.inference import Ended, Piece
from console.places import Place, Subject
from console.screens.logs import LogsPage
from console.screens.monitor import Monitor
from console.screens.playground import Playground
from console.state.store import Link, Store
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused, Unreachable
from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.api.series import SeriesAnswer
from llmgw.api.types import Explanation, Result, ServeRequest, UsageInfo
from llmgw.core import why
from tests.console import showcase, showcase_keys, showcase_names, showcase_placing, showcase_requests, showcase_series
from tests.console.harness import NOWHERE, fed, until
from tests.support.fleet_rows import NOW, empty_cluster

T = TypeVar("T")

TABS = ("overview", "models", "replicas", "nodes", "gpus", "monitor", "weights", "keys", "audit")
STATES = ("loading", "empty", "normal", "failure", "disconnected")
SIZES = ((80, 24), (120, 40), (200, 60))

PAGES: dict[str, Place] = {
    "model": Place(view="model", subject=Subject(target=Target.MODEL, key=showcase_names.MODEL)),
    "replica": Place(view="replica", subject=Subject(target=Target.REPLICA, key=showcase_names.REPLICA)),
    "node": Place(view="node", subject=Subject(target=Target.NODE, key=showcase_names.NODE)),
    "key": Place(view="key", subject=Subject(target=Target.KEY, key="key-6")),
    "team": Place(view="team", subject=Subject(target=Target.TEAM, key="research")),
    "tenant": Place(view="tenant", subject=Subject(target=Target.TENANT, key="acme")),
    "outside": Place(view="model", subject=Subject(target=Target.MODEL, key="frontier-large")),
    "charts-model": Place(view="charts", subject=Subject(target=Target.MODEL, key=showcase_names.MODEL)),
    "charts-node": Place(view="charts", subject=Subject(target=Target.NODE, key=showcase_names.NODE)),
    "charts-card": Place(view="charts", subject=Subject(target=Target.CARD, key=f"{showcase_names.NODE}/1")),
    "request": Place(view="request", subject=Subject(target=Target.REQUEST, key=showcase_requests.REQUEST)),
    "explain": Place(view="explain", subject=Subject(target=Target.MODEL, key=showcase_names.BAD_MODEL)),
    "logs": Place(view="logs", subject=Subject(target=Target.REPLICA, key=showcase_names.REPLICA)),
    "try": Place(view="try", subject=Subject(target=Target.MODEL, key=showcase_names.MODEL)),
    "yaml": Place(view="yaml", subject=Subject(target=Target.MODEL, key=showcase_names.MODEL)),
    "change": Place(view="change", subject=Subject(target=Target.CLUSTER, key="213")),
    "ctx": Place(view="ctx"),
}

DIALOGS: dict[str, tuple[str, Sequence[str]]] = {
    "help": ("gpus", ["question_mark"]),
    "palette": ("models", ["ctrl+p"]),
    "line": ("models", ["colon", *"serve hf"]),
    "filter": ("replicas", ["slash", *"state:ready !old"]),
    "serve": ("models", ["s", *"hf:org/glm-5.3"]),
    "scale": ("models", ["plus"]),
    "restart": ("models", ["r"]),
    "remove": ("models", ["D"]),
    "key": ("keys", ["n"]),
    "limits": ("keys", ["slash", *"thesis", "enter", "l"]),
    "budget": ("keys", ["slash", *"thesis", "enter", "b", *"8/day,100/mon"]),
    "move": ("keys", ["slash", *"thesis", "enter", "t"]),
    "team": ("keys", ["N", *"robotics"]),
    "revoke": ("keys", ["slash", *"thesis", "enter", "D"]),
    "stop": ("models", ["end", "k", "x"]),
    "join": ("nodes", ["n"]),
}
"""Dialog → the tab it is opened on, and the keys that open it."""


CARD_SCENES: dict[str, tuple[str, int, Sequence[str]]] = {
    "busy": ("gpu01", 0, ["b"]),
    "memory": ("gpu03", 2, ["m"]),
    "temperature": ("gpu07", 5, ["t"]),
    "held-back": ("gpu03", 0, ["w"]),
    "worn": ("gpu04", 1, ["w"]),
    "idle": ("gpu04", 4, ["w"]),
    "gone": ("gpu09", 6, ["w"]),
    "split": ("gpu08", 6, ["m"]),
    "instance": ("gpu08", 7, ["m"]),
    "free": ("gpu10", 5, ["w"]),
    "worst-first": ("gpu12", 0, ["o"]),
}
"""What there is to see of cards → node and place of the card under the cursor, and the keys pressed there."""


class StillAdmin(Admin):
    """Answers what is prepared and says nothing more: no thread, no socket."""

    def __init__(self, *, away: bool, used: bool = True) -> None:
        super().__init__(NOWHERE)
        self._away = away
        self._used = used

    async def call(self, work: Callable[[AdminClient], T]) -> T:
        """What `work` makes of the prepared answers."""
        if self._away:
            raise Unreachable("the leader does not answer: ctl-a.lab is down since 14:02")
        return work(cast("AdminClient", self))

    def sample(self, node: str) -> Result:
        """Asked in vain: nothing moves in a picture."""
        return Result(message=f"{node} was asked for a fresh sample")

    def explain(self, name: str) -> Explanation:
        """Nowhere."""
        return showcase_placing.explanation()

    def requests(self, query: RequestQuery) -> RequestPage:
        """The same at any time."""
        return RequestPage(requests=showcase_requests.matching(query) if self._used else ())

    def request(self, request_id: str) -> RequestTold:
        """One of them."""
        line = next((line for line in showcase_requests.request_lines() if line.id == request_id), None)
        if line is None:
            raise Refused(f"no request {request_id} is known here")
        return RequestTold(request=line, why=why.sentences(line))

    def explain_serve(self, request: ServeRequest) -> Explanation:
        """On two nodes."""
        return showcase_placing.fitting(request.name or "glm-5.3")

    def series(
        self,
        figures: Sequence[str],
        of: Sequence[str] = ("cluster",),
        *,
        start: float | None = None,
        end: float | None = None,
        step_s: float | None = None,
    ) -> SeriesAnswer:
        """Waves; on a cluster where nothing was used, of nothing."""
        begin = NOW - 300 if start is None else start
        return showcase_series.charted(figures, of[0], begin, step_s, reported=self._used)

    def usage(self, by: str | None = None, *, since: date | None = None, until: date | None = None) -> list[UsageInfo]:
        """The same of every span of time."""
        return showcase_keys.used(by or "key_model") if self._used else []

    @contextlib.asynccontextmanager
    async def logs(self, target: str, *, tail: int, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """The last lines, and then none."""
        if self._away:
            raise Unreachable("the log of this replica cannot be read: gpu03 is silent for 38 s")

        async def lines() -> AsyncIterator[bytes]:
            for line in showcase.LOG:
                yield line
            await asyncio.Event().wait()

        yield lines()


def store_in(state: str) -> Store:
    """What the console has heard in `state`."""
    store = copy.copy(_heard(state))
    # The state never changes; samples are added to.
    store.history = copy.deepcopy(store.history)
    return store


@functools.cache
def _heard(state: str) -> Store:
    """Heard once: a quarter of an hour of messages takes longer than all that is made of them."""
    if state == "loading":
        return Store()
    if state == "empty":
        return fed([empty_cluster()])
    return showcase.live_store(showcase.bad_rows() if state == "failure" else showcase.rows())


def console_in(state: str, *, theme: str = "dark", ascii_only: bool = False) -> Console:
    """A console that stands still in `state`; `disconnected` begins with `disconnect`."""
    console = Console(
        NOWHERE, theme=theme, ascii_only=ascii_only, store=store_in(state), follow=False, clock=lambda: NOW
    )
    console.admin.close()
    console.admin = StillAdmin(away=state == "failure", used=state not in ("loading", "empty"))
    if state != "loading":
        access = Access(url="http://gpu01.lab:8080", key="sk-x", note="typed key")
        console.accesses.remember(NOWHERE, access)
    return console


def visits(state: str) -> Iterator[tuple[str, Place]]:
    """Names and places of what there is to see in `state`: pages need something to be about."""
    # The tab of models last: pages stand under the tab they were opened from.
    for name in (*(tab for tab in TABS if tab != "models"), "models"):
        yield name, Place(view=name)
        if name == "keys":
            yield "usage", Place(view="usage")
            yield "requests", Place(view="requests")
    if state in ("normal", "failure", "disconnected"):
        yield from PAGES.items()


async def disconnect(console: Console, pilot: Pilot[Ending]) -> None:
    """The server has said nothing for 47 s."""
    reason = f"{NOWHERE} has said nothing for 6 s"
    console.store.set_link(Link(state="lost", since=NOW - 47, reason=reason))
    update = console.store.take()
    assert update is not None
    console.post_message(Console.Changed(update))
    await pilot.pause()


async def visit(console: Console, pilot: Pilot[Ending], place: Place) -> None:
    """Be there, with everything said."""
    console.go(place)
    await until(lambda: console.main.trail.here == place)
    await until(lambda: console.main.view is not None and console.main.view.is_mounted)
    await settle(console, pilot)
    view = console.main.view
    if isinstance(view, LogsPage):
        await until(lambda: view.lines.count >= len(showcase.LOG) or bool(view._state.strip(".…asking")))
        await settle(console, pilot)
    if isinstance(view, Monitor):
        await until(lambda: view.settled)
        # The second that may or may not pass meanwhile has passed; the clock stands, so there is no other.
        view.tick(console.seen())
        await until(lambda: view.settled)
        await settle(console, pilot)
    if isinstance(view, Playground):
        converse(view, failed=not console.store.link.live)
        await settle(console, pilot)


def converse(view: Playground, *, failed: bool) -> None:
    """A question, its answer, and a second one on its way."""
    view.talk.exchanges.clear()
    first = view.talk.begin("What does a mirror do here?", 100.0)
    answer = "It fetches each set of weights once,\nchecks every file against its digest,\nand hands it to nodes."
    for number, word in enumerate(answer.split(" ")):
        first.hear(Piece(text=word + " "), 100.31 + 0.012 * number)
    first.hear(Ended(reason="stop", input_tokens=23, output_tokens=24), 100.6)
    view._paint()
    view._settled = view.lines.count
    second = view.talk.begin("[@click=app.quit]and a [/] in my prompt?", 140.0)
    second.hear(Piece(text="It stays as it is: [/]."), 140.2)
    if failed:
        second.problem = "the answer broke off before its end"
    else:
        second.hear(Ended(reason="length", input_tokens=61, output_tokens=9), 140.4)
    view._paint()


async def settle(console: Console, pilot: Pilot[Ending]) -> None:
    """All workers that end have ended, nothing blinks, and what is to be drawn is drawn."""
    for line in console.screen.query(Input):
        line.cursor_blink = False
    for _ in range(2):
        await pilot.pause()
