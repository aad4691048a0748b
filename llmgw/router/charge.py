"""What a request is charged: the engine's own count where it can be true, else an estimate; nothing for an error."""

from llmgw.core.routing import RoutedModel
from llmgw.router.events import Usage
from llmgw.router.limits import MAX_CHOICES
from llmgw.router.relay import Stream

BYTES_PER_TOKEN = 4
"""Of a request's body, for an engine that never says what it read; English text has about this many."""


def usage_of(stream: Stream | None, body: bytes, model: RoutedModel) -> tuple[Usage, bool]:
    """Tokens of a request with this body, and whether they had to be estimated."""
    if stream is None or not stream.started or stream.status >= 400:
        return Usage(), False
    usage = stream.usage()
    if usage is not None and _believable(usage, body, model):
        return usage, False
    produced = stream.events.events if stream.events is not None else 0
    return Usage(max(1, len(body) // BYTES_PER_TOKEN), 0, produced), True


def _believable(usage: Usage, body: bytes, model: RoutedModel) -> bool:
    """Whether the model could have used that much: what an engine says lands on somebody's bill."""
    if not model.context_length:
        return True
    # A token of text is a byte at least; what the chat template adds fits into the context too.
    most = model.context_length * MAX_CHOICES
    return usage.input_tokens <= len(body) + model.context_length and usage.output_tokens <= most
