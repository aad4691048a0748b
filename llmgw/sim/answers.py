"""What the sim engine says: OpenAI-shaped bodies and stream events. Each event is complete, its blank line included."""

import array
import base64
import itertools
import json
import time
from collections.abc import Iterator, Sequence

import msgspec

from llmgw.sim.faults import Faults
from llmgw.sim.requests import EmbeddingJob, Job, Refused
from llmgw.sim.text import embedding, pieces, text_seed, words

DONE = b"data: [DONE]\n\n"

LYING_USAGE = {"prompt_tokens": -5, "completion_tokens": 10**18, "total_tokens": 10**18 - 5}
"""What `lie-usage` claims."""

_serial = itertools.count(1)
_encode = msgspec.json.encode


class Answer:
    """One answer in the making: its id and the events around its tokens."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.cached_tokens = 0
        """Tokens of the prompt that were not computed again."""
        kind = ("chatcmpl", "chat.completion") if job.chat else ("cmpl", "text_completion")
        self.id = f"{kind[0]}-{next(_serial):08x}{time.time_ns() & 0xFFFFFFFF:08x}"
        self.object = kind[1]
        self.created = int(time.time())
        stream_object = "chat.completion.chunk" if job.chat else "text_completion"
        self._frame = {"id": self.id, "object": stream_object, "created": self.created, "model": job.model}
        head = _encode(self._frame)[:-1]
        opening = b'"delta":{"content":' if job.chat else b'"text":'
        self._before = b"data: " + head + b',"choices":[{"index":0,' + opening
        self._after = (b"}" if job.chat else b"") + b',"logprobs":null,"finish_reason":null}]}\n\n'

    def role_event(self) -> bytes:
        """The first event of a chat stream; nothing for a completion."""
        return self._event({"delta": {"role": "assistant", "content": ""}}) if self.job.chat else b""

    def token_event(self, token: str) -> bytes:
        """One token."""
        return self._before + _encode(token) + self._after

    def closing_events(self, tokens: int) -> bytes:
        """Finish reason, usage when asked for, `[DONE]`, as the job's faults leave them."""
        job = self.job
        events = self._event({"delta": {}} if job.chat else {"text": ""}, job.finish_reason)
        if job.include_usage and not job.faults.no_usage:
            events += b"data: " + _encode(self._frame | {"choices": [], "usage": self.usage(tokens)}) + b"\n\n"
        return events if job.faults.no_done else events + DONE

    def body(self, text: str, tokens: int) -> bytes:
        """The whole answer of a request that does not stream."""
        job = self.job
        choice = {"message": {"role": "assistant", "content": text}} if job.chat else {"text": text}
        answer: dict[str, object] = {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": job.model,
            "choices": [{"index": 0, **choice, "logprobs": None, "finish_reason": job.finish_reason}],
        }
        if not job.faults.no_usage:
            answer["usage"] = self.usage(tokens)
        return _encode(answer)

    def usage(self, tokens: int) -> dict[str, object]:
        """Usage after `tokens` tokens."""
        if self.job.faults.lie_usage:
            return {**LYING_USAGE}
        return {
            "prompt_tokens": self.job.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self.job.prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def _event(self, choice: dict[str, object], finish_reason: str | None = None) -> bytes:
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}]
        return b"data: " + _encode(self._frame | {"choices": choices}) + b"\n\n"


def answer_tokens(job: Job, seed: int) -> Iterator[str]:
    """The job's tokens, one by one, `job.tokens` of them."""
    if job.sim.text is not None:
        source: Iterator[str] = iter(pieces(job.sim.text) or [""])
    else:
        source = words(text_seed(seed, job.model, job.prompt))
    for i, token in enumerate(itertools.islice(source, job.tokens)):
        yield "x" * job.faults.big_line_bytes if i == 0 and job.faults.big_line_bytes else token


def embeddings_body(job: EmbeddingJob, seed: int) -> bytes:
    """The answer to an embeddings request; base64 is of little-endian float32, as clients expect."""
    data = []
    for index, text in enumerate(job.inputs):
        values = embedding(seed, job.model, text, job.dimensions)
        vector: object = values
        if job.base64:
            vector = base64.b64encode(array.array("f", values).tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    answer: dict[str, object] = {"object": "list", "data": data, "model": job.model}
    if not job.faults.no_usage:
        answer["usage"] = {"prompt_tokens": job.prompt_tokens, "total_tokens": job.prompt_tokens}
        if job.faults.lie_usage:
            answer["usage"] = {**LYING_USAGE}
    return _encode(answer)


def models_body(names: Sequence[str], ctx_size: int) -> bytes:
    """`GET /v1/models`."""
    created = int(time.time())
    rows = [
        {"id": name, "object": "model", "created": created, "owned_by": "llmgw-sim", "max_model_len": ctx_size}
        for name in names
    ]
    return _encode({"object": "list", "data": rows})


def error_body(refused: Refused) -> bytes:
    """OpenAI's error shape."""
    error = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
    return json.dumps({"error": error}).encode()


def injected_error(faults: Faults) -> Refused | None:
    """The refusal a fault asks for."""
    if faults.loading:
        return Refused(503, "the model is loading; try again in a second", code="loading")
    if faults.error_status is None:
        return None
    code = {413: "too_large", 429: "rate_limit_exceeded", 404: "not_found"}.get(faults.error_status, "injected")
    return Refused(faults.error_status, f"injected fault error:{faults.error_status}", code=code)
