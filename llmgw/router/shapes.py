"""How each API that clients speak says things: its errors, its events, and how a stream ends that broke off.

Every client is answered in the words of the API it asked, whatever its engine spoke.
"""

import msgspec

from llmgw.router.errors import body_of, error_event
from llmgw.router.events import EventStream
from llmgw.router.ports import Refusal
from llmgw.router.typed_events import MEDIA_WORDS, MESSAGES_WORDS, RESPONSES_WORDS, TypedEvents, Vocabulary

_encode = msgspec.json.Encoder().encode


class Shape:
    """OpenAI's chat, completions and embeddings."""

    translates = False
    """Whether errors of engines have to be put in this shape."""
    one_end = True
    """Whether a stream has one event that is always its last."""

    def body(self, refusal: Refusal) -> bytes:
        """The JSON body of a refusal."""
        return body_of(refusal)

    def events(self, *, withhold: bool) -> EventStream:
        """What reads an engine's events; `withhold` keeps the usage-only one from the client."""
        return EventStream(withhold=withhold)

    def broken(self, refusal: Refusal, events: EventStream | None = None) -> bytes:
        """What ends a stream that cannot go on after `events`, if any of them came."""
        return error_event(refusal)


class TypedShape(Shape):
    """Sounds and images: errors as OpenAI's, events that say what they are."""

    words: Vocabulary = MEDIA_WORDS
    one_end = False  # each of several pictures has its own

    def events(self, *, withhold: bool) -> EventStream:
        """What reads an engine's events; nothing of them is withheld."""
        return TypedEvents(self.words)

    def broken(self, refusal: Refusal, events: EventStream | None = None) -> bytes:
        """An `error` event, unless the stream said its last word."""
        if events is not None and events.done:
            return b""
        return b"event: error\ndata: " + self.error(refusal, events) + b"\n\n"

    def error(self, refusal: Refusal, events: EventStream | None) -> bytes:
        """The data of that event."""
        return b'{"type":"error",' + body_of(refusal)[1:]


class ResponsesShape(TypedShape):
    """`/v1/responses`."""

    words = RESPONSES_WORDS
    one_end = True

    def error(self, refusal: Refusal, events: EventStream | None) -> bytes:
        """The API's own fields; `error` beside them is what makes OpenAI's clients raise."""
        fault = {
            "message": refusal.message,
            "type": refusal.type,
            "code": refusal.code,
            "param": refusal.param,
        }
        document = {
            "type": "error",
            "code": refusal.code,
            "message": refusal.message,
            "param": refusal.param,
            "sequence_number": events.next_number if isinstance(events, TypedEvents) else 0,
            "error": fault,
        }
        return _encode(document)


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicShape(TypedShape):
    """`/v1/messages`."""

    words = MESSAGES_WORDS
    translates = True
    one_end = True

    def body(self, refusal: Refusal) -> bytes:
        """The JSON body of a refusal."""
        default = "api_error" if refusal.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(refusal.status, default)
        message = refusal.message.encode("utf-8", "replace").decode()
        return _encode({"type": "error", "error": {"type": kind, "message": message}})

    def error(self, refusal: Refusal, events: EventStream | None) -> bytes:
        """The same document."""
        return self.body(refusal)


OPENAI = Shape()
MEDIA = TypedShape()
RESPONSES = ResponsesShape()
ANTHROPIC = AnthropicShape()
