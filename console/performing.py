"""Doing what was asked: a page opens, a form asks, a call runs in a worker; what is dangerous is asked about first."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from console import monitoring
from console.actions.handler import Handler, allowed, possible
from console.actions.handlers import HANDLERS
from console.figures import plural
from console.lines import TOPIC_OF, lone, named, parse_line
from console.places import Place, Subject
from console.screens.dialog import Question, TypedQuestion
from console.screens.registry import open_to, view_named
from console.state.cluster import ClusterState
from console.state.names import beside, called
from console.widgets.lines import Line
from llmgw.api.actions import Danger, Target
from llmgw.api.problems import ClientError, Usage

if TYPE_CHECKING:
    from console.app import Console
    from llmgw.api.client import AdminClient

MAX_NAMES = 6
"""Names a question lists; the others are counted."""
MAX_TOASTS = 3


def perform(console: "Console", handler: Handler, subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
    """Do what `handler` does about `subjects`."""
    if not allowed(handler, role=console.store.state.role, read_only=console.read_only):
        console.toast(_refusal(console, handler), error=True)
    elif handler.opens is not None:
        about = subjects[0] if subjects else Subject(target=Target.CLUSTER, key=" ".join(arguments))
        place = handler.opens(console.store.state, about)
        if place is not None:
            console.go(place)
    elif handler.form:
        module, _, name = handler.form.partition(":")
        form: Any = getattr(import_module(module), name)
        console.push_screen(form(console, subjects, arguments))
    elif handler.do is not None and handler.action.danger is Danger.NONE:
        _start(console, handler, subjects)
    elif handler.do is not None:
        _ask(console, handler, subjects)


def _refusal(console: "Console", handler: Handler) -> str:
    if console.read_only and handler.changes:
        return f"{handler.label}: {console.held_read_only or 'the console is read-only; ctrl+r turns that off'}"
    return f"{handler.label}: needs the role {handler.action.permission.role}, yours is {console.store.state.role}"


def _ask(console: "Console", handler: Handler, subjects: tuple[Subject, ...]) -> None:
    keys = tuple(subject.key for subject in subjects)
    label = handler.label.rstrip("…")
    lines = _named(console.store.state, subjects)
    if handler.warn is not None:
        lines += [[], [(handler.warn(console.store.state, keys), "")]]

    def answered(choice: str | None) -> None:
        if choice == "yes":
            _start(console, handler, subjects)

    if handler.action.danger is Danger.DESTROYS and handler.typed:
        word = keys[0] if len(keys) == 1 else str(len(keys))
        console.push_screen(TypedQuestion(label, lines, word), answered)
        return
    question = Question(label, lines, [("no", "Cancel"), ("yes", label)], danger=True)
    console.push_screen(question, answered)
    if handler.look is not None:
        console.run_worker(_look(console, handler.look, keys, question), group="look", exclusive=True)


async def _look(
    console: "Console", look: "Callable[[AdminClient, tuple[str, ...]], str]", keys: tuple[str, ...], question: Question
) -> None:
    """The figures that have to be asked for: they come when they come, and a question that is answered needs none."""
    try:
        question.add_line([(await console.admin.call(lambda api: look(api, keys)), "")])
    except ClientError as error:
        question.add_line([(error.message, "warn")])


def _named(state: ClusterState, subjects: tuple[Subject, ...]) -> list[Line]:
    lines: list[Line] = [
        [(called(state, each.target, each.key), "strong"), (f"  {beside(state, each.target, each.key)}", "dim")]
        for each in subjects[:MAX_NAMES]
    ]
    if len(subjects) > MAX_NAMES:
        lines.append([(f"and {len(subjects) - MAX_NAMES:,} more", "dim")])
    return lines


def _start(console: "Console", handler: Handler, subjects: tuple[Subject, ...]) -> None:
    console.run_worker(_call(console, handler, subjects), name=handler.id, group="calls")


async def _call(console: "Console", handler: Handler, subjects: tuple[Subject, ...]) -> None:
    work = handler.do
    assert work is not None
    done: list[str] = []
    failed: list[str] = []
    for subject in subjects:
        try:
            done.append(await console.admin.call(lambda api, key=subject.key: work(api, key)))  # type: ignore[misc]
        except ClientError as error:
            failed.append(error.message)
    if len(done) <= MAX_TOASTS:
        for sentence in done:
            console.toast(sentence)
    else:
        console.toast(f"{handler.label.rstrip('…')}: done for {plural(len(done), 'row')}; the last said: {done[-1]}")
    for sentence in failed[:MAX_TOASTS]:
        console.toast(sentence, error=True)
    if len(failed) > MAX_TOASTS:
        console.toast(f"{len(failed)} of {len(subjects)} failed", error=True)


def run_line(console: "Console", text: str) -> None:
    """Do what a `:` line says."""
    parsed = parse_line(text)
    if parsed.complaint:
        console.toast(parsed.complaint, error=True)
    elif parsed.view:
        _open_view(console, parsed.view, parsed.rest)
    elif parsed.handler is not None:
        _run_handler(console, parsed.handler, parsed.rest)
    else:
        _run_own(console, parsed.own, parsed.rest)


def _open_view(console: "Console", view: str, rest: tuple[str, ...]) -> None:
    spec = view_named(view)
    if spec is not None and not open_to(spec, console.store.state.role):
        console.toast(f"{spec.title}: not for the role {console.store.state.role}", error=True)
        return
    if view == "monitor" and rest:
        _open_charts(console, " ".join(rest))
        return
    targets = {topic: target for target, topic in TOPIC_OF.items()}
    key = named(console.store.state, targets[view], rest[0]) if len(rest) == 1 and view in targets else None
    if key is not None:
        page = view.removesuffix("s")
        console.go(Place(view=page, subject=Subject(target=targets[view], key=key)))
        return
    console.go(Place(view=view), filter_=" ".join(rest))


def _open_charts(console: "Console", text: str) -> None:
    of = monitoring.named(console.store.state, text)
    if isinstance(of, str):
        console.toast(of, error=True)
    else:
        console.go(monitoring.chart_place(of))


def _run_handler(console: "Console", handler: Handler, rest: tuple[str, ...]) -> None:
    state = console.store.state
    same = tuple(known for known in HANDLERS if known.action_id == handler.action_id and not known.name)
    if Target.CLUSTER in handler.about:
        console.perform(handler, (), rest)
        return
    for known in same:
        for target in known.about:
            key = named(state, target, rest[0]) if rest else None
            if key is not None:
                _perform_possible(console, known, (Subject(target=target, key=key),), rest[1:])
                return
    if len(rest) == 1 and (alone := lone(handler).get(rest[0])) is not None:
        console.perform(alone, ())
        return
    if rest:
        what = " or ".join(target.value for known in same for target in known.about)
        console.toast(f"no {what} is called {rest[0][:80]!r}", error=True)
        return
    subjects = console.main.subjects()
    for known in same:
        if subjects and all(subject.target in known.about for subject in subjects):
            _perform_possible(console, known, subjects, ())
            return
    console.toast(f"{handler.label}: say what, or put the cursor on it", error=True)


def _perform_possible(
    console: "Console", handler: Handler, subjects: tuple[Subject, ...], rest: tuple[str, ...]
) -> None:
    if possible((handler,), console.store.state, subjects):
        console.perform(handler, subjects, rest)
    else:
        state = console.store.state
        names = ", ".join(called(state, subject.target, subject.key) for subject in subjects[:3])
        console.toast(f"{handler.label}: not possible for {names} as it is", error=True)


def _run_own(console: "Console", word: str, rest: tuple[str, ...]) -> None:
    if word in ("quit", "q"):
        console.ask_to_quit()
    elif word == "help":
        console.main.open_help()
    elif word == "readonly":
        console.toggle_read_only()
    elif word == "theme":
        if not rest or not console.set_look(rest[0]):
            console.toast("themes are dark, light and 16", error=bool(rest))
    elif word == "ctx":
        _run_ctx(console, rest)
    elif word == "try":
        _run_try(console, rest)
    elif word in ("teams", "tenants"):
        _run_scopes(console, Target(word.removesuffix("s")), rest)


def _run_ctx(console: "Console", rest: tuple[str, ...]) -> None:
    try:
        if not rest:
            console.go(Place(view="ctx"))
        elif rest[0] == "add" and len(rest) in (3, 4):
            console.contexts.add(*rest[1:])
            console.toast(f"{rest[1]} means {rest[2]}; `:ctx {rest[1]}` goes there")
        elif rest[0] == "remove" and len(rest) == 2:
            console.contexts.remove(rest[1])
            console.toast(f"{rest[1]} is forgotten; the cluster itself runs on")
        elif len(rest) == 1 or " ".join(rest) in console.context_names():
            console.change_cluster(console.contexts.find(" ".join(rest)))
        else:
            raise Usage(
                ":ctx lists clusters, :ctx NAME goes to one, :ctx add NAME SERVER [TOKEN-FILE] and :ctx remove NAME"
            )
    except Usage as error:
        console.toast(error.message, error=True)


def _run_scopes(console: "Console", target: Target, rest: tuple[str, ...]) -> None:
    key = named(console.store.state, target, rest[0]) if len(rest) == 1 else None
    if key is not None:
        console.go(Place(view=target.value, subject=Subject(target=target, key=key)))
    else:
        console.go(Place(view="keys"), filter_=" ".join((f"kind:{target.value}", *rest)))


def _run_try(console: "Console", rest: tuple[str, ...]) -> None:
    handler = next(handler for handler in HANDLERS if handler.id == "model.show.try")
    if len(rest) == 1 and rest[0] in console.store.state.models:
        console.perform(handler, (Subject(target=Target.MODEL, key=rest[0]),))
    elif rest:
        console.toast(f"no model is called {rest[0][:80]!r}", error=True)
    elif possible((handler,), console.store.state, console.main.subjects()):
        console.perform(handler, console.main.subjects())
    else:
        console.toast(":try MODEL, or put the cursor on one", error=True)
