"""The playground: what is streamed is shown with its figures, esc ends it at the server, keys are never left behind."""

from functools import partial
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from console.app import Console, Ending
from console.client.access import Access, Accesses
from console.client.inference import Ended, Piece
from console.places import Place, Subject
from console.screens.client_key import ClientKeyForm
from console.screens.dialog import Question
from console.screens.playground import Playground
from console.state.trial import MAX_ANSWER_LINES, Conversation, Exchange
from console.widgets.lines import Lines
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.types import KeyCreated, Result
from llmgw.api.watch import ClusterRow, Snapshot
from tests.console.harness import console_with, screen_text, shown, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import model_row, small_rows, snapshot
from tests.support.scripted_chat import Reply, scripted_chat

MODEL = "qwen2.5-7b"
TRY = Place(view="try", subject=Subject(target=Target.MODEL, key=MODEL))


def fleet_at(url: str, *, role: str = "admin") -> Snapshot:
    """The small fleet, whose models are asked at `url`."""
    rows = small_rows()
    head = rows["cluster"]["cluster"]
    assert isinstance(head, ClusterRow)
    rows["cluster"] = {"cluster": msgspec.structs.replace(head, client_url=url)}
    return snapshot(rows, role=role)


def trying(url: str, key: str = "sk-typed", *, role: str = "admin", read_only: bool = False) -> Console:
    """A console whose cluster is asked at `url`, with a key typed before unless it is empty."""
    console = console_with(fleet_at(url, role=role), start="models", read_only=read_only)
    if key:
        console.accesses.remember(console.admin.target, Access(url=url, key=key, note="typed key"))
    return console


async def opened(console: Console, pilot: Pilot[Ending]) -> Playground:
    """The page."""
    console.go(TRY)
    await until(lambda: isinstance(console.main.view, Playground) and console.main.view.is_mounted)
    await pilot.pause()
    view = console.main.view
    assert isinstance(view, Playground)
    return view


async def said(pilot: Pilot[Ending], text: str) -> None:
    """Type a line and send it."""
    await pilot.press(*("space" if letter == " " else letter for letter in text), "enter")


@pytest.mark.asyncio
async def test_the_key_t_opens_it_and_an_answer_streams_with_its_figures() -> None:
    async with scripted_chat() as chat:
        console = trying(chat.url)
        async with shown(console) as pilot:
            await pilot.press("t")
            await until(lambda: isinstance(console.main.view, Playground) and console.main.view.is_mounted)
            view = console.main.view
            assert isinstance(view, Playground)
            assert view.place.key in console.store.state.models
            await pilot.pause()
            await said(pilot, "hi you")
            await until(lambda: bool(view.talk.exchanges) and not view.running)
            await pilot.pause()
            last = view.talk.last
            assert last is not None
            assert (str(last.answer), last.ended) == ("Hello!", Ended(reason="stop", input_tokens=12, output_tokens=3))
            text = screen_text(console)
            assert "> hi you" in text
            assert "Hello!" in text
            assert "first token" in text
            assert "12 in, 3 out" in text
            assert "stop" in text
        request = chat.replies[0]
        assert request.headers["authorization"] == "Bearer sk-typed"
        assert request.body["stream_options"] == {"include_usage": True}
        assert request.body["messages"] == [{"role": "user", "content": "hi you"}]


@pytest.mark.asyncio
async def test_the_model_is_told_what_was_said_before_until_it_is_forgotten() -> None:
    async with scripted_chat() as chat:
        console = trying(chat.url)
        async with shown(console) as pilot:
            view = await opened(console, pilot)
            for number, word in enumerate(("one", "two"), 1):
                await said(pilot, word)
                await until(lambda number=number: len(view.talk.exchanges) == number and not view.running)  # type: ignore[misc]
            await pilot.press("ctrl+n")
            assert view.talk.exchanges == []
            await said(pilot, "three")
            await until(lambda: len(chat.asked) == 3 and not view.running)
        assert [turn["content"] for turn in chat.asked[1]["messages"]] == ["one", "Hello!", "two"]
        assert [turn["content"] for turn in chat.asked[2]["messages"]] == ["three"]


@pytest.mark.asyncio
async def test_escape_ends_the_stream_at_the_server_and_keeps_what_came() -> None:
    async def endless(reply: Reply) -> None:
        await reply.stream()
        await reply.text("some", " words")
        await reply.left.wait()

    async with scripted_chat() as chat:
        chat.script = endless
        console = trying(chat.url)
        async with shown(console) as pilot:
            view = await opened(console, pilot)
            await said(pilot, "go")
            await until(lambda: view.talk.last is not None and view.talk.last.pieces == 2)
            assert any(command.id == "end" for command in console.main.commands())
            await pilot.press("escape")
            await until(lambda: chat.replies[0].left.is_set())
            await until(lambda: not view.running)
            await pilot.pause()
            assert console.main.view is view
            assert "ended by you" in screen_text(console)
            assert "some words" in screen_text(console)
            # With nothing running, the same key leaves the page.
            await pilot.press("escape")
            await until(lambda: not isinstance(console.main.view, Playground))


@pytest.mark.asyncio
async def test_leaving_the_page_ends_the_stream_too() -> None:
    async def endless(reply: Reply) -> None:
        await reply.stream()
        await reply.text("x")
        await reply.left.wait()

    async with scripted_chat() as chat:
        chat.script = endless
        console = trying(chat.url)
        async with shown(console) as pilot:
            view = await opened(console, pilot)
            await said(pilot, "go")
            await until(lambda: view.talk.last is not None and view.talk.last.pieces == 1)
            console.go(Place(view="nodes"))
            await until(lambda: chat.replies[0].left.is_set())


async def _no_key(reply: Reply) -> None:
    await reply.refuse(401, b'{"error": {"message": "This key was revoked.", "type": "x", "code": "invalid_api_key"}}')


async def _page(reply: Reply) -> None:
    await reply.refuse(502, b"<html>", "text/html")


async def _midway(reply: Reply) -> None:
    await reply.stream()
    await reply.text("half")
    await reply.event({"error": {"message": "The engine was lost midway.", "code": "engine_lost"}})


async def _cut(reply: Reply) -> None:
    await reply.stream()
    await reply.text("half")


async def _nonsense(reply: Reply) -> None:
    await reply.stream()
    await reply.raw(b"data: {nonsense\n\n")


async def _hostile(reply: Reply) -> None:
    message = "[@click=app.quit]x[/] \x1b]0;owned\x07 \u202e[/bold]"
    await reply.refuse(503, msgspec.json.encode({"error": message}))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (_no_key, "This key was revoked."),
        (_page, "502 Bad Gateway"),
        (_midway, "The engine was lost midway."),
        (_cut, "broke off"),
        (_nonsense, "no part of an answer"),
        (_hostile, "[@click=app.quit]x[/]"),
    ],
)
async def test_what_goes_wrong_is_a_sentence_and_the_question_can_be_sent_again(script: object, sentence: str) -> None:
    async with scripted_chat() as chat:
        chat.script = script  # type: ignore[assignment]
        console = trying(chat.url)
        async with shown(console, size=(140, 30)) as pilot:
            view = await opened(console, pilot)
            await said(pilot, "go")
            await until(lambda: view.talk.last is not None and not view.running)
            await pilot.pause()
            text = screen_text(console)
            assert sentence in text
            assert "\x1b" not in text
            assert "\u202e" not in text
            last = view.talk.last
            assert last is not None
            # What got no answer at all stands in the line again.
            assert view.query_one("#try-input", Input).value == ("" if str(last.answer) else "go")


@pytest.mark.asyncio
async def test_nobody_there_is_a_sentence() -> None:
    console = trying("http://127.0.0.1:1")
    async with shown(console) as pilot:
        view = await opened(console, pilot)
        await said(pilot, "go")
        await until(lambda: view.talk.last is not None and not view.running)
        await pilot.pause()
        assert "nothing answers at http://127.0.0.1:1" in screen_text(console)


@pytest.mark.asyncio
async def test_an_admin_is_offered_a_temporary_key_which_ends_with_the_page(tmp_path: Path) -> None:
    async with scripted_chat() as chat, fake_feed(tmp_path / "admin.sock", fleet_at(chat.url)) as feed:
        made = KeyCreated(id="key-1", name="console-try", key="sk-made")
        feed.answers["/api/v1/keys"] = msgspec.json.encode(made)
        feed.answers["/api/v1/keys/key-1/revoke"] = msgspec.json.encode(Result(message="revoked"))
        console = Console(ServerTarget(socket=feed.path), start="models")
        async with shown(console) as pilot:
            await until(lambda: console.store.state.heard)
            view = await opened(console, pilot)
            await until(lambda: isinstance(console.screen, Question))
            await pilot.press("enter")
            await until(lambda: view.access is not None)
            await said(pilot, "go")
            await until(lambda: len(chat.replies) == 1 and not view.running)
            assert chat.replies[0].headers["authorization"] == "Bearer sk-made"
            await pilot.press("escape")
            await until(lambda: not isinstance(console.main.view, Playground))
            await until(lambda: feed.called == ["/api/v1/keys", "/api/v1/keys/key-1/revoke"])


@pytest.mark.asyncio
async def test_quitting_revokes_a_temporary_key(tmp_path: Path) -> None:
    async with scripted_chat() as chat, fake_feed(tmp_path / "admin.sock", fleet_at(chat.url)) as feed:
        feed.answers["/api/v1/keys"] = msgspec.json.encode(KeyCreated(id="key-1", name="n", key="sk-made"))
        feed.answers["/api/v1/keys/key-1/revoke"] = msgspec.json.encode(Result(message="revoked"))
        console = Console(ServerTarget(socket=feed.path), start="models")
        async with shown(console) as pilot:
            await until(lambda: console.store.state.heard)
            view = await opened(console, pilot)
            await until(lambda: isinstance(console.screen, Question))
            await pilot.press("enter")
            await until(lambda: view.access is not None)
            console.exit(Ending.LEFT)
        await until(lambda: feed.called[-1:] == ["/api/v1/keys/key-1/revoke"])


@pytest.mark.asyncio
@pytest.mark.parametrize(("role", "read_only"), [("operator", False), ("admin", True)])
async def test_who_may_make_no_key_is_asked_for_one_and_it_is_remembered(role: str, read_only: bool) -> None:
    async with scripted_chat() as chat:
        console = trying(chat.url, "", role=role, read_only=read_only)
        async with shown(console) as pilot:
            view = await opened(console, pilot)
            await until(lambda: isinstance(console.screen, ClientKeyForm))
            await pilot.press("enter")
            assert "a key is needed" in screen_text(console)
            await pilot.press(*"sk-mine")
            assert "sk-mine" not in screen_text(console)
            await pilot.press("enter")
            await until(lambda: view.access is not None)
            await said(pilot, "go")
            await until(lambda: len(chat.replies) == 1 and not view.running)
            await pilot.press("escape")
            await until(lambda: not isinstance(console.main.view, Playground))
            again = await opened(console, pilot)
            assert again.access is not None
            assert again.access.key == "sk-mine"
        assert chat.replies[0].headers["authorization"] == "Bearer sk-mine"


@pytest.mark.asyncio
async def test_without_a_key_nothing_is_sent_and_the_line_says_how_to_give_one() -> None:
    async with scripted_chat() as chat:
        console = trying(chat.url, "", role="viewer")
        async with shown(console) as pilot:
            await opened(console, pilot)
            await until(lambda: isinstance(console.screen, ClientKeyForm))
            await pilot.press("escape")
            await until(lambda: console.screen is console.main)
            await pilot.pause()
            assert "no key" in screen_text(console)
            await said(pilot, "go")
            await until(lambda: isinstance(console.screen, ClientKeyForm))
        assert chat.replies == []


def test_the_demos_key_is_read_beside_its_socket(tmp_path: Path) -> None:
    target = ServerTarget(socket=tmp_path / "admin.sock")
    assert Accesses().find(target, "http://x") is None
    (tmp_path / "demo.key").write_text("sk-demo\n")
    found = Accesses().find(target, "http://x")
    assert found == Access(url="http://x", key="sk-demo", note="demo.key")
    assert Accesses().find(ServerTarget(host="h", port=1), "http://x") is None
    (tmp_path / "demo.key").write_text("two words\n")
    assert Accesses().find(target, "http://x") is None


@pytest.mark.asyncio
async def test_letters_are_text_while_one_types_and_keys_while_one_reads() -> None:
    async with scripted_chat() as chat:
        console = trying(chat.url)
        async with shown(console) as pilot:
            view = await opened(console, pilot)
            await pilot.press(*"1qD:?/")
            assert console.main.view is view
            assert view.query_one("#try-input", Input).value == "1qD:?/"
            assert "? help" not in screen_text(console)
            await pilot.press("tab")
            await until(lambda: isinstance(console.focused, Lines))
            await pilot.pause()
            assert "? help" in screen_text(console)
            await pilot.press("4")
            await until(lambda: console.main.trail.here.view == "nodes")


@pytest.mark.asyncio
async def test_a_model_that_is_not_ready_or_gone_says_so() -> None:
    rows = small_rows()
    rows["models"] = {"cold": model_row("cold", "stopped", ready=0)}
    console = console_with(snapshot(rows), start="models")
    console.accesses.remember(console.admin.target, Access(url="http://127.0.0.1:1", key="k", note=""))
    async with shown(console) as pilot:
        for name, sentence in (("cold", "cold is stopped: nothing answers yet"), ("none", "not there any more")):
            place = Place(view="try", subject=Subject(target=Target.MODEL, key=name))
            console.go(place)
            await until(partial(_stands_at, console, place))
            await pilot.pause()
            assert sentence in screen_text(console)


@pytest.mark.asyncio
async def test_the_line_opens_it_by_the_models_name() -> None:
    console = trying("http://127.0.0.1:1")
    async with shown(console) as pilot:
        console.run_line(f"try {MODEL}")
        await until(lambda: isinstance(console.main.view, Playground))
        await pilot.pause()
        assert console.main.trail.here.subject == Subject(target=Target.MODEL, key=MODEL)


def _stands_at(console: Console, place: Place) -> bool:
    view = console.main.view
    return view is not None and view.is_mounted and view.place == place


# -- the conversation, without a screen


def test_figures_come_from_the_moments_and_the_engines_count() -> None:
    exchange = Exchange(question="q", asked_at=10.0)
    assert exchange.running
    exchange.hear(Piece(text="a"), 10.5)
    assert (exchange.first_token_s, exchange.tokens_per_s) == (0.5, None)
    exchange.hear(Piece(text="b\nc"), 11.5)
    assert exchange.tokens_per_s == 1.0
    exchange.hear(Ended(reason="stop", output_tokens=11), 11.6)
    assert exchange.tokens_per_s == 10.0
    assert exchange.answer.lines == ["ab", "c"]
    assert not exchange.running


def test_a_question_without_an_answer_is_not_told_again() -> None:
    talk = Conversation()
    talk.begin("lost", 0.0).problem = "gone"
    kept = talk.begin("kept", 1.0)
    kept.hear(Piece(text="half"), 1.1)
    kept.broken_off = True
    talk.begin("open", 2.0)
    assert [(turn.role, turn.text) for turn in talk.turns()] == [
        ("user", "kept"),
        ("assistant", "half"),
        ("user", "open"),
    ]


def test_an_answer_of_a_million_lines_is_full() -> None:
    exchange = Exchange(question="q", asked_at=0.0)
    exchange.hear(Piece(text="\n" * 1_000_000), 0.1)
    assert exchange.full
    assert len(exchange.answer.lines) <= MAX_ANSWER_LINES + 1
