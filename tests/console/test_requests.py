"""The requests view: what it says of each, whom it is about, that it follows, and the page that tells why."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from console.app import Console, Ending
from console.places import Place, Subject
from console.screens import requests
from console.screens.request import RequestPage, timeline
from console.screens.requests import Requests
from llmgw.api.actions import Target
from llmgw.api.problems import Unreachable
from llmgw.api.request_types import RequestQuery
from llmgw.api.targets import ServerTarget
from llmgw.control.requests import RequestReader
from llmgw.core.requests import RequestLine
from tests.console.harness import console_with, screen_text, shown, until
from tests.console.showcase_requests import REQUEST, request_lines
from tests.support.console_plane import ConsolePlane, console_plane
from tests.support.fleet_rows import NOW, small_rows, snapshot
from tests.support.request_logs import a_line, write


@contextlib.asynccontextmanager
async def at_requests(
    directory: Path, *, role: str = "operator", start: str = "requests", size: tuple[int, int] = (200, 40)
) -> AsyncIterator[tuple[Console, ConsolePlane, Pilot[Ending]]]:
    """A console at the requests of a real admin app."""
    with console_plane(directory) as (plane, socket):
        plane.lines.extend(request_lines())
        console = console_with(snapshot(small_rows(), role=role), start=start, target=ServerTarget(socket=socket))
        async with shown(console, size=size) as pilot:
            yield console, plane, pilot


def view_of(console: Console) -> Requests:
    """The view in front."""
    view = console.main.view
    assert isinstance(view, Requests)
    return view


@pytest.mark.asyncio
class TestView:
    async def test_each_request_says_how_it_went_and_what_was_remarkable(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path) as (console, _, pilot):
            await until(lambda: view_of(console).table.total == len(request_lines()))
            await pilot.pause()
            text = screen_text(console)
            assert view_of(console).table.shown[0] == request_lines()[0].id
            assert "3 went wrong" in text
            assert "waited 1.8 s in band bronze because" in text
            assert "[b]batch[/]" in text

    async def test_it_follows_until_it_is_told_not_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "ASK_S", 0.01)
        async with at_requests(tmp_path) as (console, plane, pilot):
            view = view_of(console)
            await until(lambda: view.table.total == len(request_lines()))
            assert view.table.move_to(REQUEST)
            fresh = msgspec.structs.replace(request_lines()[0], id="req-fresh", at=NOW)
            plane.lines.append(fresh)
            await until(lambda: "req-fresh" in view.table.shown)
            assert view.table.cursor_key == REQUEST
            await pilot.press("f")
            await until(lambda: "not following" in screen_text(console))
            asked = len(plane.calls)
            plane.lines.append(msgspec.structs.replace(fresh, id="req-unseen"))
            await pilot.pause(0.1)
            assert len(plane.calls) <= asked + 1  # one may have been under way
            await pilot.press("f")
            await until(lambda: "req-unseen" in view.table.shown)

    async def test_a_models_row_leads_to_its_requests_and_back(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path, start="models") as (console, plane, pilot):
            model = console.main.subjects()[0].key
            plane.lines.append(RequestLine(id="req-small", at=NOW - 60, status=200, end="complete", model=model))
            await pilot.press("v")
            await until(lambda: isinstance(console.main.view, Requests))
            await until(lambda: view_of(console).table.shown == ["req-small"])
            assert f"of model {model}" in screen_text(console)
            asked = [call[1] for call in plane.calls if call[0] == "requests"]
            assert {query.model for query in asked} == {model}  # type: ignore[attr-defined]
            await pilot.press("escape")
            await until(lambda: console.main.trail.here.view == "models")

    async def test_what_is_behind_the_first_pages_of_a_large_log_is_found_and_one_look_is_enough(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "ASK_S", 0.01)
        monkeypatch.setattr("llmgw.control.request_lines.BLOCK_BYTES", 1024)
        log = tmp_path / "requests"
        write(log, [a_line(0, key_id="rare"), *(a_line(number) for number in range(1, 400))])
        async with at_requests(tmp_path) as (console, plane, pilot):
            await until(lambda: view_of(console).table.total == len(request_lines()))
            plane.request_log = RequestReader(log, scan_bytes=4000)
            console.go(Place(view="requests", subject=Subject(target=Target.KEY, key="rare")))
            await until(lambda: view_of(console).table.shown == ["req-0"])
            plane.calls.clear()
            await until(lambda: len(plane.calls) > 2)
            await pilot.pause()
            asked = [query for _, query in plane.calls if isinstance(query, RequestQuery)]
            assert {query.since is not None for query in asked if query.cursor is None} == {True}

    async def test_filters_find_by_state_model_and_key(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path) as (console, _, _pilot):
            view = view_of(console)
            await until(lambda: view.table.total == len(request_lines()))
            view.set_filter("state:refused status:429")
            assert view.table.shown == ["req-8f2c01d7a9b344e1902f4b"]
            view.set_filter("band:bronze")
            assert view.table.shown == [REQUEST]

    async def test_none_and_no_answer_are_said(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path) as (console, plane, _):
            await until(lambda: view_of(console).table.total == len(request_lines()))
            plane.lines.clear()
            console.go(Place(view="requests", subject=Subject(target=Target.KEY, key="nobody")))
            await until(lambda: "no request of these has ended on this machine yet" in screen_text(console))
        console = console_with(snapshot(small_rows(), role="operator"), start="requests")
        async with shown(console):
            await until(lambda: "is not there: no server runs" in screen_text(console))

    async def test_what_was_heard_stays_while_nobody_answers_and_the_title_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "ASK_S", 0.01)
        async with at_requests(tmp_path) as (console, _, pilot):
            view = view_of(console)
            await until(lambda: view.table.total == len(request_lines()))

            async def away(_: object) -> None:
                raise Unreachable("the leader does not answer")

            monkeypatch.setattr(console.admin, "call", away)
            await until(lambda: "the leader does not answer" in screen_text(console))
            assert view.table.total == len(request_lines())
            monkeypatch.undo()
            await until(lambda: "the leader does not answer" not in screen_text(console))
            await pilot.pause()

    async def test_viewers_are_not_led_there(self) -> None:
        console = console_with(snapshot(small_rows(), role="viewer"), start="models")
        async with shown(console) as pilot:
            ids = {command.id for command in console.main.commands()}
            assert not {"request.list", "request.list.of", "request.show"} & ids
            await pilot.press("v")
            assert console.main.trail.here.view == "models"


@pytest.mark.asyncio
class TestPage:
    async def test_enter_tells_why_and_where_the_time_went(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path, size=(120, 40)) as (console, _, pilot):
            await until(lambda: view_of(console).table.total == len(request_lines()))
            assert view_of(console).table.move_to(REQUEST)
            await pilot.pause()
            await pilot.press("enter")
            await until(lambda: isinstance(console.main.view, RequestPage))
            await until(lambda: "answered by gpu03" in screen_text(console))
            text = screen_text(console)
            assert "first tried on gpu04/qwen3-coder-30b-33f1" in text
            assert "try 1 failed" in text
            assert "4bf92f3577b34da6a3ce929d0e0e4736" in text
            view = console.main.view
            assert view is not None
            assert view.copy_text().splitlines()[0] == REQUEST
            await pilot.press("escape")
            await until(lambda: isinstance(console.main.view, Requests))

    async def test_a_request_is_found_by_its_id_on_the_line(self, tmp_path: Path) -> None:
        async with at_requests(tmp_path, start="overview") as (console, _, pilot):
            await pilot.press("colon", *f"why {REQUEST}", "enter")
            await until(lambda: "answered by gpu03" in screen_text(console))
            await pilot.press("colon", *"why req-gone", "enter")
            await until(lambda: "no request 'req-gone' is in the log" in screen_text(console))


def test_bars_stand_under_the_time_they_are_of() -> None:
    line = next(line for line in request_lines() if line.id == REQUEST)
    bars = [("".join(text for text, _ in spans)) for spans in timeline(line, 67)]
    assert [bar.split()[0] for bar in bars] == ["waited", "try", "first", "streaming"]
    assert len({len(bar) for bar in bars}) == 1
    assert bars[-1].endswith("█")
    assert [bar.index("█") for bar in bars] == sorted(bar.index("█") for bar in bars)
