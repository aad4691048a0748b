"""The `:` line's grammar: a view with a filter or a name, an action with what it is about, or one of the console's own.

Parsing is pure; running what it says is the console's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from console import monitoring
from console.actions.handler import Handler
from console.actions.handlers import HANDLERS
from console.screens.registry import TABS, VIEWS
from console.state.cluster import ClusterState
from console.state.scopes import KINDS, find, names_of
from llmgw.api.actions import Target
from llmgw.core.near import MOST_NAMED, near, or_those

OWN: dict[str, str] = {
    "ctx": "clusters one has a name for; `:ctx NAME` goes there, `:ctx add NAME SERVER` remembers one",
    "try": "ask a model something",
    "teams": "teams among the keys; `:teams NAME` opens one",
    "tenants": "tenants among the keys; `:tenants NAME` opens one",
    "theme": "dark, light or 16",
    "help": "keys of this view",
    "readonly": "what changes something is absent, or not",
    "quit": "leave",
    "q": "leave",
}
"""The console's own words."""
MAX_WORD = 60
"""Characters of a wrong word that a complaint repeats."""
SCHEMES = ("hf:", "https://", "file:/", "pypi:", "sim:")
"""How a source begins."""
TOPIC_OF = {Target.MODEL: "models", Target.REPLICA: "replicas", Target.NODE: "nodes", Target.KEY: "keys"}


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A command line, understood: exactly one of the first three is there, or `complaint` says what is wrong."""

    view: str = ""
    handler: Handler | None = None
    own: str = ""
    rest: tuple[str, ...] = ()
    complaint: str = ""


def words_of(handler: Handler) -> tuple[str, ...]:
    """How the line spells a handler: its action's verb, as `ctl` has it."""
    if not handler.action.verb or handler.variant not in ("", "model"):
        return ()
    return handler.action.verb


def lone(handler: Handler) -> dict[str, Handler]:
    """Words behind a handler that name nothing of the cluster's rows, as in `:logs server`, and what each does."""
    found = (known for known in HANDLERS if known.action_id == handler.action_id and known.variant)
    return {known.variant: known for known in found if Target.CLUSTER in known.about}


def parse_line(text: str) -> Parsed:
    """What `text` says. Views win over actions of the same word, and actions of two words over views."""
    words = tuple(text.split())
    if not words:
        return Parsed(complaint="nothing typed")
    # `keys create ci` is more than the view `keys` with a filter.
    handler = _spelled(words, least=2)
    if handler is not None:
        return Parsed(handler=handler, rest=words[len(words_of(handler)) :])
    if any(view.name == words[0] for view in VIEWS if view.digit):
        return Parsed(view=words[0], rest=words[1:])
    if words[0] in OWN:
        return Parsed(own=words[0], rest=words[1:])
    handler = _spelled(words, least=1)
    if handler is not None:
        return Parsed(handler=handler, rest=words[len(words_of(handler)) :])
    found = [handler for handler in HANDLERS if words_of(handler)[-1:] == words[:1]]
    if found and len({handler.action_id for handler in found}) == 1:
        return Parsed(handler=found[0], rest=words[1:])
    if found:
        spelled_out = " or ".join(f":{' '.join(words_of(handler))}" for handler in found)
        return Parsed(complaint=f":{words[0]} could mean {spelled_out}")
    return Parsed(complaint=_neither(words[0]))


def _neither(word: str) -> str:
    """What `word` is not, with the words it is a slip of, else the views that there are."""
    known = sorted(name for name in _first_words() if " " not in name)
    meant = or_those([name for name in known if name.startswith(word)][:MOST_NAMED] or near(word[:MAX_WORD], known))
    if meant:
        return f"{word[:MAX_WORD]!r} is neither a view nor an action{meant}"
    views = ", ".join(view.name for view in TABS)
    return f"{word[:MAX_WORD]!r} is neither a view ({views}) nor an action; ? lists them"


def _spelled(words: tuple[str, ...], *, least: int) -> Handler | None:
    for handler in HANDLERS:
        spelled = words_of(handler)
        if len(spelled) >= least and words[: len(spelled)] == spelled:
            return handler
    return None


def candidates(text: str, state: ClusterState, contexts: Iterable[str] = ()) -> list[str]:
    """Lines that go on from `text`: first words, then names of what the first word is about."""
    words = text.split(" ")
    if len(words) == 1:
        return sorted(word for word in _first_words() if word.startswith(text))
    before, last = " ".join(words[:-1]), words[-1]
    return [f"{before} {name}" for name in _names(before, last, state, contexts) if name.startswith(last)]


def _first_words() -> set[str]:
    spelled = {" ".join(words_of(handler)) for handler in HANDLERS if words_of(handler)}
    return {view.name for view in TABS} | set(OWN) - {"q"} | spelled | {words.split()[-1] for words in spelled}


def _names(before: str, last: str, state: ClusterState, contexts: Iterable[str]) -> list[str]:
    if before == "ctx":
        return sorted(contexts)
    if before == "try":
        return sorted(state.models)
    if before in ("teams", "tenants"):
        return names_of(state, Target(before.removesuffix("s")))
    if before == "theme":
        return ["dark", "light", "16"]
    parsed = parse_line(before)
    if parsed.view == "monitor" and not parsed.rest:
        return monitoring.names(state, last)
    if parsed.view in ("models", "replicas", "nodes"):
        return sorted(state.rows(parsed.view))
    if parsed.handler is not None and not parsed.rest:
        if parsed.handler.action_id in ("model.serve", "weights.fetch"):
            return [*SCHEMES, *_sources(state)]
        names = {name for target in parsed.handler.about for name in subjects_named(state, target)}
        return sorted({*names, *lone(parsed.handler)})
    return []


def subjects_named(state: ClusterState, target: Target) -> list[str]:
    """What subjects of a target are called on the line."""
    if target in KINDS or target is Target.KEY:
        return names_of(state, target)
    return list(state.rows(TOPIC_OF[target])) if target in TOPIC_OF else []


def named(state: ClusterState, target: Target, word: str) -> str | None:
    """Key of the subject that `word` names, if there is one."""
    if target in KINDS or target is Target.KEY:
        return find(state, target, word)
    return word if target in TOPIC_OF and word in state.rows(TOPIC_OF[target]) else None


def _sources(state: ClusterState) -> list[str]:
    """Sets of the mirror, and what models are served from; what cannot be typed as one word is none."""
    known = {*state.weights, *(model.source for model in state.models.values())}
    return sorted(source for source in known if source.isprintable() and " " not in source)
