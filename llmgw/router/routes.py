"""The routes that are relayed to engines, and in which they differ.

Life of a request on any of them: its body is read (`fields`, or a form), its model checked, a place reserved by
`charge.demand_of`, the request relayed with `accept`, the answer read in its `shape`, and counted by `counts`.
"""

from dataclasses import dataclass
from enum import Enum

import msgspec

from llmgw.router.fields import OUR_FIELDS, Fields, RerankFields, ResponsesFields, SpeechFields
from llmgw.router.shapes import ANTHROPIC, MEDIA, OPENAI, RESPONSES, Shape


class Counts(Enum):
    """Whose word is taken for a request's tokens."""

    ESTIMATED = "the engine's, else an estimate"
    TOLD = "the engine's, else none"
    NOTHING = "nobody's: it takes none"


class Forms(Enum):
    """Whether the body is JSON or a form."""

    NEVER = "JSON"
    EITHER = "JSON or multipart/form-data"
    ALWAYS = "multipart/form-data"


@dataclass(frozen=True)
class Facts:
    """In what a route differs from others."""

    path: str
    required: str = ""
    """Field without which a request means nothing; empty leaves that to the engine."""
    fields: type[Fields] = Fields
    shape: Shape = OPENAI
    streams: bool = False
    """Whether a client may ask for events."""
    usage_option: bool = False
    """Whether it knows `stream_options.include_usage`."""
    chat: bool = False
    """Whether the model's chat template adds to what is read."""
    writes: bool = False
    """Whether its answers are tokens that a client may bound."""
    max_param: str = "max_completion_tokens"
    """What it calls that bound (`Fields.max_completion_tokens`), beside `max_tokens`."""
    counts: Counts = Counts.ESTIMATED
    forms: Forms = Forms.NEVER
    other_fields: tuple[str, ...] = ()
    """Fields beside OUR_FIELDS that may come once only."""


class Route(Enum):
    """A route of the client API that engines answer."""

    CHAT = Facts("/v1/chat/completions", "messages", streams=True, usage_option=True, chat=True, writes=True)
    COMPLETIONS = Facts("/v1/completions", "prompt", streams=True, usage_option=True, writes=True)
    EMBEDDINGS = Facts("/v1/embeddings", "input")
    RESPONSES = Facts(
        "/v1/responses",
        fields=ResponsesFields,
        shape=RESPONSES,
        streams=True,
        chat=True,
        writes=True,
        max_param="max_output_tokens",
        other_fields=("max_output_tokens",),
    )
    MESSAGES = Facts("/v1/messages", "messages", shape=ANTHROPIC, streams=True, chat=True, writes=True)
    COUNT_TOKENS = Facts("/v1/messages/count_tokens", "messages", shape=ANTHROPIC, counts=Counts.NOTHING)
    RERANK = Facts("/v1/rerank", "query", fields=RerankFields, counts=Counts.TOLD)
    SPEECH = Facts(
        "/v1/audio/speech",
        "input",
        fields=SpeechFields,
        shape=MEDIA,
        streams=True,
        counts=Counts.TOLD,
        other_fields=("stream_format",),
    )
    TRANSCRIPTIONS = Facts(
        "/v1/audio/transcriptions", shape=MEDIA, streams=True, counts=Counts.TOLD, forms=Forms.ALWAYS
    )
    TRANSLATIONS = Facts("/v1/audio/translations", shape=MEDIA, counts=Counts.TOLD, forms=Forms.ALWAYS)
    IMAGES = Facts("/v1/images/generations", "prompt", shape=MEDIA, streams=True, counts=Counts.TOLD)
    IMAGE_EDITS = Facts("/v1/images/edits", shape=MEDIA, streams=True, counts=Counts.TOLD, forms=Forms.EITHER)

    def __init__(self, facts: Facts) -> None:
        self.path = facts.path
        """Path on the client port and on the engine."""
        self.required = facts.required
        self.shape = facts.shape
        self.streams = facts.streams
        self.usage_option = facts.usage_option
        self.chat = facts.chat
        self.writes = facts.writes
        self.max_param = facts.max_param
        self.counts = facts.counts
        self.forms = facts.forms
        self.decode = msgspec.json.Decoder(facts.fields).decode
        """Reads a JSON body's fields."""
        self.once = OUR_FIELDS + facts.other_fields
        """Fields that may come once only."""
        self.quoted = tuple(f'"{name}"'.encode() for name in self.once)
        self.accept = b"*/*" if facts.shape is MEDIA else b"application/json"
        """Kinds of answer asked for when no stream is."""


ROUTES = {route.path.encode(): route for route in Route}
"""By raw path."""
