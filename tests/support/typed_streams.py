"""Streams of typed events as their APIs write them, an event an item."""

import base64
import json
from collections.abc import Sequence

JSON = dict[str, object]


def typed(name: str, document: JSON) -> bytes:
    """One event that says what it is."""
    data = json.dumps({"type": name, **document}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()


def response_stream(texts: Sequence[str], *, usage: tuple[int, int, int]) -> list[bytes]:
    """Of `/v1/responses`; `usage` is input, output, cached."""
    events: list[tuple[str, JSON]] = [
        ("response.created", {"response": {"id": "resp_1", "status": "in_progress", "error": None, "usage": None}}),
        ("response.output_item.added", {"item": {"id": "msg_1", "type": "message", "content": []}}),
    ]
    events += [("response.output_text.delta", {"item_id": "msg_1", "delta": text}) for text in texts]
    whole = "".join(texts)
    said = {
        "input_tokens": usage[0],
        "output_tokens": usage[1],
        "total_tokens": usage[0] + usage[1],
        "input_tokens_details": {"cached_tokens": usage[2]},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    output = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}]
    output[0]["content"] = [{"type": "output_text", "text": whole, "annotations": []}]  # type: ignore[assignment]
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": output}
    events += [
        ("response.output_text.done", {"item_id": "msg_1", "text": whole}),
        ("response.completed", {"response": response | {"usage": said, "user": None, "metadata": {}}}),
    ]
    return [typed(name, {"sequence_number": i} | document) for i, (name, document) in enumerate(events)]


def message_stream(texts: Sequence[str], *, usage: tuple[int, int, int]) -> list[bytes]:
    """Of `/v1/messages`; `usage` is input that no cache had, cached input, output."""
    first = {"input_tokens": usage[0], "cache_read_input_tokens": usage[1], "output_tokens": 1}
    deltas = [{"index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts]
    return [
        typed("message_start", {"message": {"id": "msg_1", "role": "assistant", "content": [], "usage": first}}),
        typed("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        typed("ping", {}),
        *[typed("content_block_delta", delta) for delta in deltas],
        typed("content_block_stop", {"index": 0}),
        typed("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": usage[2]}}),
        typed("message_stop", {}),
    ]


def speech_stream(parts: Sequence[bytes], *, usage: tuple[int, int]) -> list[bytes]:
    """Of `/v1/audio/speech`; `usage` is input, output."""
    said = {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": sum(usage)}
    return [
        *[typed("speech.audio.delta", {"audio": base64.b64encode(part).decode()}) for part in parts],
        typed("speech.audio.done", {"usage": said}),
    ]
