"""What the router reads of the bodies of each route; whatever else is in them is between client and engine."""

import msgspec


class Fields(msgspec.Struct):
    """What the router reads of a body."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    n_predict: msgspec.Raw = msgspec.Raw(b"")
    """As llama.cpp calls `max_tokens`; it heeds this one where both are there. -1 is no bound."""
    n_cmpl: msgspec.Raw = msgspec.Raw(b"")
    """The same of `n`."""
    best_of: msgspec.Raw = msgspec.Raw(b"")
    """Answers that are written so that `n` of them can be chosen."""
    stream_options: msgspec.Raw = msgspec.Raw(b"")
    messages: msgspec.Raw = msgspec.Raw(b"")
    prompt: msgspec.Raw = msgspec.Raw(b"")
    input: msgspec.Raw = msgspec.Raw(b"")
    session_id: msgspec.Raw = msgspec.Raw(b"")
    prompt_cache_key: msgspec.Raw = msgspec.Raw(b"")
    user: msgspec.Raw = msgspec.Raw(b"")

    @property
    def streamed(self) -> bool:
        """Whether the client asked for a stream."""
        return self.stream is True


class ResponsesFields(Fields):
    """Of `/v1/responses`, which has a name of its own for the bound of an answer; engines may heed `max_tokens` too."""

    max_completion_tokens: int | None = msgspec.field(default=None, name="max_output_tokens")


class RerankFields(Fields):
    """Of `/v1/rerank`."""

    query: msgspec.Raw = msgspec.Raw(b"")


class SpeechFields(Fields):
    """Of `/v1/audio/speech`, whose stream is asked for by its format."""

    stream_format: str | None = None

    @property
    def streamed(self) -> bool:
        """Whether the client asked for events."""
        return self.stream_format == "sse"


OUR_FIELDS = ("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n")
"""Of which a second one makes a body ambiguous."""
OTHER_NAMES = ("n_predict", "n_cmpl", "best_of")
"""What some engines heed beside or instead of `max_tokens` and `n`."""
