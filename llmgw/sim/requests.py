"""What clients ask of the sim engine, decoded and checked; a refusal is a `Refused` in OpenAI's error shape."""

from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from llmgw.core.errors import InvalidInput
from llmgw.sim.faults import NO_FAULTS, Faults, parse_faults
from llmgw.sim.options import EngineOptions
from llmgw.sim.text import EMBEDDING_DIMENSIONS, MESSAGE_TOKENS, count_tokens, pieces

MAX_INPUTS = 2048
MAX_DIMENSIONS = 4096

Input = str | list[str | int | list[int]]
"""A text, texts, token ids, or lists of token ids."""

T = TypeVar("T")


class Refused(Exception):
    """An answer other than 200: status, sentence, and OpenAI's `type`, `code` and `param`."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.kind = "invalid_request_error" if status < 500 else "server_error"


class SimFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body's `sim` object: this one request, differently. It survives gateways that drop headers."""

    fault: str | None = None
    tokens: int | None = None
    """Length of the answer."""
    text: str | None = None
    """The answer, word for word."""
    rate: float | None = None
    prefill_ms: float | None = None
    chunk: int | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Generation(msgspec.Struct):
    model: str | None = None
    messages: list[_Message] | None = None
    prompt: Input | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    ignore_eos: bool | None = None
    sim: SimFields | None = None


class _Embeddings(msgspec.Struct):
    model: str | None = None
    input: Input = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    sim: SimFields | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One generation, all decided."""

    chat: bool
    model: str
    prompt: str
    prompt_tokens: int
    tokens: int
    """Tokens the answer will have."""
    finish_reason: str
    stream: bool
    include_usage: bool
    sim: SimFields
    faults: Faults


@dataclass(frozen=True, kw_only=True)
class EmbeddingJob:
    """One embeddings request."""

    model: str
    inputs: tuple[str, ...]
    prompt_tokens: int
    base64: bool
    dimensions: int
    faults: Faults


def decode_generation(body: bytes, header_fault: str | None, options: EngineOptions, *, chat: bool) -> Job:
    """A chat completion or completion; raises Refused (400 malformed or too long, 404 unknown model)."""
    raw = _decode(body, _Generation)
    model = _served(raw.model, options)
    sim = raw.sim or SimFields()
    _check_sim(sim)
    if raw.n not in (None, 1):
        raise Refused(400, "this engine gives one choice; leave n out or set it to 1", param="n")
    prompt, prompt_tokens = _chat_prompt(raw.messages) if chat else _plain_prompt(raw.prompt)
    if prompt_tokens >= options.ctx_size:
        raise Refused(
            400,
            f"the request has {prompt_tokens} tokens and this model's context holds {options.ctx_size}; shorten it",
            code="context_length_exceeded",
            param="messages" if chat else "prompt",
        )
    wanted = raw.max_completion_tokens if raw.max_completion_tokens is not None else raw.max_tokens
    if wanted is not None and wanted < 1:
        raise Refused(400, f"max_tokens is {wanted}; it is at least 1", param="max_tokens")
    tokens, finish_reason = _length(raw, sim, wanted, options, prompt_tokens)
    return Job(
        chat=chat,
        model=model,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        finish_reason=finish_reason,
        stream=bool(raw.stream),
        include_usage=bool(raw.stream_options and raw.stream_options.include_usage),
        sim=sim,
        faults=choose_faults(sim.fault, header_fault, options),
    )


def decode_embeddings(body: bytes, header_fault: str | None, options: EngineOptions) -> EmbeddingJob:
    """An embeddings request; raises Refused as `decode_generation` does."""
    raw = _decode(body, _Embeddings)
    model = _served(raw.model, options)
    inputs = _inputs(raw.input)
    if not inputs or len(inputs) > MAX_INPUTS or not all(inputs):
        raise Refused(400, f"input is 1 to {MAX_INPUTS} texts, none of them empty", param="input")
    dimensions = EMBEDDING_DIMENSIONS if raw.dimensions is None else raw.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise Refused(400, f"dimensions is {dimensions}; it is 1 to {MAX_DIMENSIONS}", param="dimensions")
    tokens = [count_tokens(text) for text in inputs]
    if max(tokens) > options.ctx_size:
        raise Refused(
            400,
            f"an input has {max(tokens)} tokens and this model's context holds {options.ctx_size}; shorten it",
            code="context_length_exceeded",
            param="input",
        )
    return EmbeddingJob(
        model=model,
        inputs=inputs,
        prompt_tokens=sum(tokens),
        base64=raw.encoding_format == "base64",
        dimensions=dimensions,
        faults=choose_faults(raw.sim.fault if raw.sim else None, header_fault, options),
    )


def choose_faults(in_body: str | None, in_header: str | None, options: EngineOptions) -> Faults:
    """Body before header before the engine's default; raises Refused for one that is not known."""
    text = in_body if in_body is not None else in_header if in_header is not None else options.fault
    try:
        return parse_faults(text) if text else NO_FAULTS
    except InvalidInput as error:
        raise Refused(400, error.message, param="sim.fault") from error


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the body is not a valid request: {error}", code="invalid_body") from error


def _served(name: str | None, options: EngineOptions) -> str:
    if not name:
        return options.names[0]
    if name not in options.names:
        served = ", ".join(options.names)
        raise Refused(404, f"model {name[:140]!r} is not here; {served} is", code="model_not_found", param="model")
    return name


def _check_sim(sim: SimFields) -> None:
    for name, value, high in (
        ("tokens", sim.tokens, 1 << 24),
        ("chunk", sim.chunk, 1 << 16),
        ("rate", sim.rate, 1e6),
        ("prefill_ms", sim.prefill_ms, 1e7),
    ):
        low = 1 if name in ("tokens", "chunk") else 0
        if value is not None and not low <= value <= high:
            raise Refused(400, f"sim.{name} is {value}; it is {low} to {high:g}", param=f"sim.{name}")


def _length(
    raw: _Generation, sim: SimFields, wanted: int | None, options: EngineOptions, prompt_tokens: int
) -> tuple[int, str]:
    room = options.ctx_size - prompt_tokens
    limit = room if wanted is None else min(wanted, room)
    natural = sim.tokens or options.answer_tokens
    if sim.text is not None:
        natural = len(pieces(sim.text)) or 1
    if raw.ignore_eos and sim.tokens is None:
        natural = limit + 1
    return (natural, "stop") if natural <= limit else (limit, "length")


def _chat_prompt(messages: list[_Message] | None) -> tuple[str, int]:
    if not messages:
        raise Refused(400, "messages is missing or empty; it holds at least one message", param="messages")
    lines, tokens = [], 0
    for message in messages:
        content = message.content or ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        lines.append(f"{message.role}: {text}")
        tokens += count_tokens(text) + MESSAGE_TOKENS
    return "\n".join(lines), tokens


def _plain_prompt(prompt: Input | None) -> tuple[str, int]:
    texts = _inputs(prompt) if prompt is not None else ()
    if len(texts) != 1:
        raise Refused(400, "prompt is one text; send one request a prompt", param="prompt")
    return texts[0], count_tokens(texts[0])


def _inputs(value: Input) -> tuple[str, ...]:
    """Texts of an input; token ids are written out as words, so that they count as they should."""
    if isinstance(value, str):
        return (value,)
    if any(isinstance(item, int) for item in value):
        return (" ".join(map(str, value)),)
    return tuple(" ".join(map(str, item)) if isinstance(item, list) else str(item) for item in value)
