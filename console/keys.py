"""Everything that can be done here and now, as one list: the frame's commands, the view's, and the registry's actions.

The footer, the key that was pressed, the palette, the help and the `:` line all read this list and nothing else.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from console.actions.handler import Handler, allowed, possible
from console.actions.handlers import HANDLERS
from console.commands import Command
from console.places import Place, Subject
from console.screens.registry import tabs_for
from console.state.cluster import ClusterState
from llmgw.api.actions import Danger, Target

if TYPE_CHECKING:
    from console.app import Console

EVERYWHERE = "everywhere"
_ACTION_IDS = tuple(dict.fromkeys(handler.action_id for handler in HANDLERS))


def commands(console: "Console") -> list[Command]:
    """The list. The first command on a key has it."""
    view = console.main.view
    own = view.commands() if view is not None else []
    found = _one_a_key([*own, *_actions(console), *_frame(console), *_tabs(console)])
    if view is None or not view.typing:
        return found
    # What is typed is text: only keys that are no letters are keys.
    return [replace(command, key="") if len(command.key) == 1 else command for command in found]


def _one_a_key(found: list[Command]) -> list[Command]:
    """The list, without the key where a command before has it: the palette still has all of them."""
    taken: set[str] = set()
    for place, command in enumerate(found):
        if command.key and command.key in taken:
            found[place] = replace(command, key="")
        taken.add(command.key)
    return found


def _frame(console: "Console") -> list[Command]:
    main = console.main
    here = main.trail.here.view

    def command(id_: str, label: str, key: str, run: str, footer: int = 0, help_: str = "") -> Command:
        method = getattr(main, run)
        return Command(id=id_, label=label, key=key, help=help_, group=EVERYWHERE, run=method, footer=footer)

    listed = [
        command("filter", "filter", "/", "open_filter", 70, "words, !not, state:failed; kept until esc"),
        command("line", "command", ":", "open_line", 30, "a view, an action or a name; tab completes"),
        command("yaml", "YAML", "y", "open_yaml", 15, "what the cursor is on, as YAML"),
        command("copy", "copy", "c", "copy", 0, "to the clipboard, through SSH too (OSC 52)"),
        command("escape", "back", "escape", "escape", 0, "unmark, drop the filter, then the place before"),
        command("back", "the place before", "[", "back"),
        command("forward", "the place after", "]", "forward"),
        command("palette", "palette", "ctrl+p", "open_palette", 0, "every action possible here and now"),
        command("help", "help", "?", "open_help"),
        command(
            "read-only", "read-only on or off", "ctrl+r", "toggle_read_only", 0, "what changes something is absent"
        ),
        command("aside", "to the shell", "ctrl+z", "put_aside", 0, "its fg comes back here"),
        command("quit", "quit", "q", "quit"),
    ]
    return [each for each in listed if each.id != here]


def _tabs(console: "Console") -> list[Command]:
    return [
        Command(
            id=f"view.{tab.name}",
            label=tab.title,
            key=tab.digit,
            group="views",
            run=lambda name=tab.name: console.go(Place(view=name)),  # type: ignore[misc]
        )
        for tab in tabs_for(console.store.state.role)
    ]


def _actions(console: "Console") -> list[Command]:
    state = console.store.state
    subjects = console.main.subjects()
    view, here = console.main.view, console.main.trail.here
    aims = {id_: aimed for id_ in _ACTION_IDS if view is not None and (aimed := view.aimed(id_))}
    found: list[Command] = []
    for handler in HANDLERS:
        about = aims.get(handler.action_id, subjects)
        if not possible((handler,), state, about) or _leads(handler, state, about) == here:
            continue
        if allowed(handler, role=state.role, read_only=console.read_only):
            found.append(_command(console, handler, _of(handler, about), here.view))
    return found


def _leads(handler: Handler, state: ClusterState, subjects: tuple[Subject, ...]) -> Place | None:
    """The place a handler goes to: where one is already is no way to go."""
    return handler.opens(state, subjects[0]) if handler.opens is not None and subjects else None


def _of(handler: Handler, subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
    return () if Target.CLUSTER in handler.about else subjects


def _command(console: "Console", handler: Handler, subjects: tuple[Subject, ...], here: str) -> Command:
    bound = not handler.views or here in handler.views
    return Command(
        id=handler.id,
        label=_label(handler),
        key=handler.key if bound else "",
        help=handler.help or handler.action.help,
        group=_group(subjects),
        run=lambda: console.perform(handler, subjects),
        footer=handler.footer if bound else 0,
        dangerous=handler.action.danger is not Danger.NONE,
    )


def _label(handler: Handler) -> str:
    label = handler.label
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def _group(subjects: tuple[Subject, ...]) -> str:
    if not subjects:
        return "cluster"
    if len(subjects) == 1:
        return f"{subjects[0].target} {subjects[0].key}"
    return f"{len(subjects)} marked"
