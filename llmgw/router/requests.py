"""The few fields of a request body that the router needs, and splices that change one of them and no other byte.

Whatever the router read from the body is what the engine will read: a field of ours that comes twice, where readers
differ on which one counts, is refused.
"""

import re
from collections.abc import Collection

import msgspec

from llmgw.core.routing import RoutedModel
from llmgw.router.body_words import no_json, wrong_type
from llmgw.router.fields import OTHER_NAMES, OUR_FIELDS, Fields
from llmgw.router.limits import MAX_CHOICES, MAX_STRINGS, MAX_TOKENS_ASKED
from llmgw.router.ports import Refusal
from llmgw.router.routes import Route

_QUOTED = Route.CHAT.quoted
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
_SCALAR_END = re.compile(rb"[,}\] \t\r\n]")
_PATH = re.compile(r"`\$\.?([A-Za-z_.\[\]0-9]*)`")
FORM_FIELDS = ("model", "stream", "n")
"""What the router reads of a form."""
_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})
"""What engines take for true in a form."""
_MAX_DIGITS = 9
_NO_BOUND = -1
"""What llama.cpp takes for no bound of an answer."""
_decode_number = msgspec.json.Decoder(int | None).decode

Span = tuple[int, int]


def read_fields(body: bytes, route: Route) -> Fields:
    """The fields of a JSON body, checked; raises Refusal (400) naming where it is wrong."""
    if not body.isascii():
        _check_utf8(body, route)
    try:
        fields = route.decode(body)
    except msgspec.ValidationError as error:
        place = _PATH.search(str(error))
        param = (place.group(1) or None) if place else None
        raise _bad(wrong_type(str(error), param), param=param) from None
    except msgspec.DecodeError as error:
        raise _bad(no_json(str(error), body, route)) from None
    except RecursionError:
        raise _bad("The body is nested too deeply.") from None
    if not fields.model:
        raise _bad("you must provide a model parameter", param="model")
    if route.required:
        required = bytes(getattr(fields, route.required))
        if not required or required == b"null":
            raise _bad(f"Missing required parameter: '{route.required}'.", param=route.required)
        if route.required == "messages" and required[:1] != b"[":
            raise _bad("'messages' must be an array.", param="messages")
    _check_range(fields.n, 1, MAX_CHOICES, "n")
    _check_range(fields.max_tokens, 0, MAX_TOKENS_ASKED, "max_tokens")
    _check_range(fields.max_completion_tokens, 0, MAX_TOKENS_ASKED, route.max_param)
    if needs_telling_apart(body, route.quoted):
        locate(body, route.once)
    if route.writes and (bytes(fields.n_predict) or bytes(fields.n_cmpl) or bytes(fields.best_of)):
        _heed_other_names(fields, body)
    return fields


def _heed_other_names(fields: Fields, body: bytes) -> None:
    """Count what is asked for under another name as well; raises Refusal."""
    locate(body, OTHER_NAMES)
    n_predict = _whole(fields.n_predict, "n_predict")
    n_cmpl, best_of = _whole(fields.n_cmpl, "n_cmpl"), _whole(fields.best_of, "best_of")
    _check_range(n_cmpl, 1, MAX_CHOICES, "n_cmpl")
    _check_range(best_of, 1, MAX_CHOICES, "best_of")
    if n_predict == _NO_BOUND:
        fields.max_tokens = fields.max_completion_tokens = None
    elif n_predict is not None:
        _check_range(n_predict, 0, MAX_TOKENS_ASKED, "n_predict")
        fields.max_tokens = max(fields.max_tokens or 0, n_predict)
    if n_cmpl is not None or best_of is not None:
        fields.n = max(fields.n or 1, n_cmpl or 1, best_of or 1)


def _whole(value: msgspec.Raw, param: str) -> int | None:
    """The number a field holds, none where it is left out; raises Refusal."""
    try:
        return _decode_number(value) if bytes(value) else None
    except msgspec.DecodeError as error:
        raise _bad(wrong_type(str(error), param), param=param) from None


def read_form(values: dict[str, bytes]) -> Fields:
    """The fields of a form that may hold some of FORM_FIELDS, checked; raises Refusal (400)."""
    texts = {}
    for name, value in values.items():
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            raise _bad(f"The form's field {name!r} is not valid UTF-8.", param=name) from None
    if not texts.get("model"):
        raise _bad("you must provide a model parameter", param="model")
    n = texts.get("n")
    if n is not None and not (n.isascii() and n.isdigit() and len(n) <= _MAX_DIGITS):
        raise _bad("n must be a whole number.", param="n")
    fields = Fields(model=texts["model"], stream=texts.get("stream", "").lower() in _TRUE, n=int(n) if n else None)
    _check_range(fields.n, 1, MAX_CHOICES, "n")
    return fields


def check_max_output(fields: Fields, model: RoutedModel, route: Route = Route.CHAT) -> None:
    """Refuse a request for more tokens than the model may answer with; raises Refusal (400)."""
    limit = model.max_output or model.context_length
    for asked, param in (
        (_whole(fields.n_predict, "n_predict") if route.writes else None, "n_predict"),
        (fields.max_completion_tokens, route.max_param),
        (fields.max_tokens, "max_tokens"),
    ):
        if limit and asked is not None and asked > limit:
            raise _bad(
                f"{param} is too large: {asked}. This model supports at most {limit} completion tokens.", param=param
            )


def needs_telling_apart(body: bytes, quoted: Collection[bytes] = _QUOTED) -> bool:
    """Whether one of our fields may occur twice, or spelled with escapes; cheap, and true rather too often."""
    if body.find(b"\\u00") >= 0:
        return True
    for name in quoted:  # a loop and no generator: it runs for every request
        first = body.find(name)
        if first >= 0 and body.find(name, first + 1) >= 0:
            return True
    return False


def locate(body: bytes, names: Collection[str] = OUR_FIELDS) -> dict[str, Span]:
    """Where the values of our top-level fields begin and the byte after their keys' colons; `body` is valid JSON.

    Raises Refusal when one of them comes twice, or when there are too many strings to look at.
    """
    spans: dict[str, Span] = {}
    depth, end = 0, 0
    for i, found in enumerate(_STRING.finditer(body)):
        if i > MAX_STRINGS:
            raise _bad(f"The body holds more than {MAX_STRINGS} strings and keys that need telling apart.")
        start = found.start()
        gap = body[end:start]
        depth += gap.count(b"{") + gap.count(b"[") - gap.count(b"}") - gap.count(b"]")
        end = found.end()
        if depth != 1 or (colon := _COLON.match(body, end)) is None:
            continue
        name = found.group()[1:-1]
        if b"\\" in name:
            name = _unescaped(found.group())
        key = name.decode("utf-8", "replace")
        if key in names:
            if key in spans:
                raise _bad(f"The field {key!r} comes twice.", param=key)
            spans[key] = _value_span(body, colon.end())
    return spans


def _unescaped(literal: bytes) -> bytes:
    try:
        return msgspec.json.decode(literal, type=str).encode("utf-8", "replace")
    except msgspec.DecodeError:
        return literal


def _value_span(body: bytes, start: int) -> Span:
    """Span of the string, scalar or object that begins at `start`."""
    if body[start : start + 1] == b'"':
        found = _STRING.match(body, start)
        return (start, found.end() if found else start)
    if body[start : start + 1] == b"{":
        depth, at = 0, start
        for found in _STRING.finditer(body, start):
            close = _object_end(body, at, found.start(), depth)
            if close:
                return (start, close)
            begin = found.start()
            gap = body[at:begin]
            depth += gap.count(b"{") - gap.count(b"}")
            at = found.end()
        return (start, _object_end(body, at, len(body), depth) or len(body))
    found = _SCALAR_END.search(body, start)
    return (start, found.start() if found else len(body))


def _object_end(body: bytes, at: int, stop: int, depth: int) -> int:
    """Index after the brace that brings `depth` to zero in body[at:stop], a stretch without strings; 0 is none."""
    for i in range(at, min(stop, at + 4096)):
        if body[i] == 0x7B:
            depth += 1
        elif body[i] == 0x7D:
            depth -= 1
            if depth == 0:
                return i + 1
    return 0


def _span(body: bytes, name: str) -> Span:
    """Span of a top-level field's value that is known to be there."""
    if not needs_telling_apart(body):
        colon = _COLON.match(body, body.find(f'"{name}"'.encode()) + len(name) + 2)
        if colon is not None:
            return _value_span(body, colon.end())
    return locate(body)[name]


def with_model(body: bytes, name: str) -> bytes:
    """The body with another model name, every other byte as it was."""
    start, end = _span(body, "model")
    return body[:start] + msgspec.json.encode(name) + body[end:]


def asks_usage(fields: Fields) -> bool:
    """Whether the client itself asked for the usage event; raises Refusal for options that are not an object."""
    return bool(_options(fields).get("include_usage"))


def with_usage(body: bytes, fields: Fields) -> bytes:
    """The body asking for the usage event, every byte outside `stream_options` as it was."""
    if not bytes(fields.stream_options):
        options = b'"stream_options":{"include_usage":true}'
        brace = body.index(b"{") + 1
        return body[:brace] + options + b"," + body[brace:]
    start, end = _span(body, "stream_options")
    value = msgspec.json.encode(_options(fields) | {"include_usage": True})
    return body[:start] + value + body[end:]


def _options(fields: Fields) -> dict[str, object]:
    raw = bytes(fields.stream_options)
    if raw in (b"", b"null"):
        return {}
    if len(raw) > 4096:
        raise _bad("'stream_options' is too long.", param="stream_options")
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        raise _bad("'stream_options' must be an object.", param="stream_options") from None


def _check_utf8(body: bytes, route: Route) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise _bad(no_json(f"it is not UTF-8 at byte {error.start}", body, route)) from None


def _check_range(value: int | None, low: int, high: int, param: str) -> None:
    if value is not None and not low <= value <= high:
        raise _bad(f"{param} must be between {low} and {high}, not {value}.", param=param)


def _bad(message: str, *, param: str | None = None) -> Refusal:
    return Refusal(400, message[:500], param=param)
