"""What a request may take before it runs, and what it is charged after: the engine's own count where that can be true,
else an estimate; nothing for an error.
"""

import re
from typing import Final

import msgspec

from llmgw.core.prices import Prices, cost_micros
from llmgw.core.routing import RoutedModel
from llmgw.router.fields import Fields
from llmgw.router.limits import MAX_CHOICES, MAX_COUNT
from llmgw.router.relay import Stream
from llmgw.router.routes import Counts, Forms, Route
from llmgw.router.scopes import Demand
from llmgw.router.token_usage import Usage

BYTES_PER_TOKEN = 4
"""Of a request's body, for an engine that never says what it read; English text has about this many."""
LIKELY_OUTPUT_TOKENS = 256
"""Charged for an answer whose request named no number, until it is known: an ordinary answer of a chat."""
UNKNOWN_OUTPUT_TOKENS = 32_768
"""The most an answer may cost where neither the request nor the catalog bounds it: more than engines' own defaults."""
LARGEST_CONTEXT_TOKENS = 10_000_000
"""More than any model reads or writes: what nobody bounded is believed up to here."""
TEMPLATE_TOKENS = 1_000
"""What a model's chat template may add of its own, a system prompt above all, to what the client wrote."""
_MEDIA = re.compile(rb'"(?:input_|image|audio|video|file|document"|previous_response_id|conversation")')
"""In the body of a request that may hold or name what is read besides: its length does not bound those tokens."""

_ESTIMATED: Final = Counts.ESTIMATED  # bound once: an enum's member is looked up by way of its metaclass, each time
_NOTHING: Final = Counts.NOTHING
_COMPLETIONS: Final = Route.COMPLETIONS
_MESSAGES: Final = Route.MESSAGES

_decode_prompts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def demand_of(fields: Fields, body: bytes, model: RoutedModel, route: Route, *, budgeted: bool) -> Demand:
    """What the request may take, in money only if `budgeted`; `fields` were read of `body` and checked."""
    if route.counts is not _ESTIMATED:
        return _demand_of_told(fields, body, model, route, budgeted=budgeted)
    context, prices = model.context_length, model.prices
    input_tokens = len(body) // BYTES_PER_TOKEN or 1
    if context and input_tokens > context:
        input_tokens = context
    choices, asked = 1, True
    output_tokens = most_output = 0
    if route.writes:
        choices = (fields.n or 1) * _prompts(fields, route)
        named, other = fields.max_completion_tokens, fields.max_tokens
        asked = named is not None or other is not None
        most = max(named or 0, other or 0) if asked else model.max_output or context or UNKNOWN_OUTPUT_TOKENS
        most_output = choices * most
        output_tokens = most_output if asked else choices * min(LIKELY_OUTPUT_TOKENS, most)
    worst = 0
    if budgeted and prices is not None:
        added = TEMPLATE_TOKENS if route.chat else 0
        worst = _worst_micros(prices, body, added, context, most_output)
    return Demand(input_tokens, output_tokens, asked, choices, worst)


def _demand_of_told(fields: Fields, body: bytes, model: RoutedModel, route: Route, *, budgeted: bool) -> Demand:
    """Of a route whose tokens only the engine knows: what is text is reserved, and of money all that it may come to."""
    if route.counts is _NOTHING:
        return Demand(0, 0, True, 1, 0)
    context, prices = model.context_length, model.prices
    text = route.forms is Forms.NEVER
    input_tokens = min(len(body) // BYTES_PER_TOKEN or 1, context or MAX_COUNT) if text else 0
    worst = 0
    if budgeted and prices is not None:
        most = context or UNKNOWN_OUTPUT_TOKENS
        most_output = 0 if route is Route.RERANK else (fields.n or 1) * (model.max_output or most)
        if text:
            worst = _worst_micros(prices, body, 0, context, most_output)
        else:
            worst = cost_micros(prices, input_tokens=most, cached_tokens=0, output_tokens=most_output)
    return Demand(input_tokens, 0, True, 1, worst)


def _worst_micros(prices: Prices, body: bytes, added: int, context: int, most_output: int) -> int:
    # A token of text is a byte at least.
    most_input = len(body) + added
    if context and (most_input > context or _MEDIA.search(body) is not None):
        most_input = context
    cached = most_input if (prices.cached_input or 0.0) > prices.input else 0
    return cost_micros(prices, input_tokens=most_input, cached_tokens=cached, output_tokens=most_output)


def _prompts(fields: Fields, route: Route) -> int:
    """How many prompts a completion asks to continue: one, unless it is a list of texts or of token lists."""
    if route is not _COMPLETIONS:
        return 1
    prompt = bytes(fields.prompt)
    if prompt[:1] != b"[":
        return 1
    prompts = _decode_prompts(prompt)
    return len(prompts) if prompts and bytes(prompts[0])[:1] in (b'"', b"[") else 1


def cost_of(usage: Usage, model: RoutedModel) -> int:
    """Micros that these tokens cost."""
    return cost_micros(
        model.prices,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )


def usage_of(
    stream: Stream | None, body_bytes: int, model: RoutedModel, route: Route, fields: Fields
) -> tuple[Usage, bool]:
    """Tokens of a request with a body of this length, and whether they had to be estimated."""
    if stream is None or not stream.started or stream.status >= 400:
        return Usage(), False
    if route.counts is _NOTHING:
        return Usage(), False
    usage = stream.usage()
    if usage is not None and not _believable(usage, body_bytes, model, route, fields):
        usage = None
    told = route.counts is Counts.TOLD
    if usage is not None and (told or (usage.input_tokens and not _unsaid(usage, stream, route))):
        return usage, False
    if told or (stream.says_error and not _tokens_seen(stream)):
        return Usage(), False
    read = max(1, body_bytes // BYTES_PER_TOKEN)
    if usage is None:
        return Usage(read, 0, _produced(stream, model, route, fields)), True
    # An engine that said one of the two: nothing is written without having been read, nor is the other way for free.
    written = _produced(stream, model, route, fields) if _unsaid(usage, stream, route) else usage.output_tokens
    return Usage(usage.input_tokens or read, usage.cached_tokens, written), True


def _unsaid(usage: Usage, stream: Stream, route: Route) -> bool:
    """Whether an engine did not say what it wrote: it left that out, or said nothing after events with content.

    A message's first event says of what is written only that it began.
    """
    if route is _MESSAGES and stream.events is not None and not stream.events.done:
        return usage.output_tokens < _tokens_seen(stream)
    if not route.writes or usage.output_tokens:
        return False
    return _tokens_seen(stream) > 0 if stream.events is not None else usage.output_unsaid


def _tokens_seen(stream: Stream) -> int:
    return stream.events.events if stream.events is not None else 0


def _produced(stream: Stream, model: RoutedModel, route: Route, fields: Fields) -> int:
    """Tokens of an answer whose engine does not say: its events, or what its bytes may hold within what was asked."""
    if stream.events is not None or not route.writes:
        return _tokens_seen(stream)
    asked = max(fields.max_completion_tokens or 0, fields.max_tokens or 0)
    most = (asked or model.max_output or model.context_length or UNKNOWN_OUTPUT_TOKENS) * _choices(route, fields)
    return min(stream.body_bytes // BYTES_PER_TOKEN, most)


def _choices(route: Route, fields: Fields) -> int:
    """How many answers one request gets at most; completions may have several prompts, and drafts."""
    return MAX_CHOICES if route is _COMPLETIONS else fields.n or 1


def _believable(usage: Usage, body_bytes: int, model: RoutedModel, route: Route, fields: Fields) -> bool:
    """Whether the model could have used that much: what an engine says lands on somebody's bill."""
    context = model.context_length or LARGEST_CONTEXT_TOKENS
    # A token of text is a byte at least; what the chat template adds fits into the context too.
    return usage.input_tokens <= body_bytes + context and usage.output_tokens <= context * _choices(route, fields)
