"""Whose trace a request belongs to: the client's by its `traceparent`, read as strictly as W3C's Trace Context has it.

A header that is anything but well formed is as good as none: the trace then begins here.
"""

import os
import random
import re
from dataclasses import dataclass

from llmgw.core.requests import Seen
from llmgw.router.heads import RequestHead

MAX_STATE_BYTES = 512
"""A longer `tracestate` is not passed on: the specification asks for no more."""
SAMPLED = 1
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_PARENT_NAME = b"traceparent"
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16
_FORBIDDEN_VERSION = b"ff"
_HALF = 1 << 63


@dataclass(slots=True)
class Trace:
    """The trace of one request."""

    id: str
    """32 hex digits."""
    parent: str
    """The client's span, 16 hex digits; empty where the trace begins here."""
    span: str
    """The request's own."""
    sampled: bool
    """Whether its spans are exported, here and by the engine."""
    exported: bool
    """Whether they are exported from here: sampled, and there is somewhere to send them."""
    state: bytes = b""
    """The client's `tracestate`."""

    def lines(self, span: str) -> bytes:
        """Header lines that tell an engine of its parent `span`, each with its CRLF."""
        flags = SAMPLED if self.sampled else 0
        told = b"traceparent: 00-%b-%b-%02x\r\n" % (self.id.encode(), span.encode(), flags)
        return told + b"tracestate: %b\r\n" % self.state if self.state else told


def new_span_id() -> str:
    """16 hex digits, never all zeros."""
    return f"{random.getrandbits(64) or 1:016x}"


def trace_of(head: RequestHead, seen: Seen) -> Trace | None:
    """The trace a request belongs to; none when neither the client traces nor we do."""
    exports = bool(seen.endpoint)
    for name, _ in head.headers:  # a loop and no generator: it runs for every request
        if name == _PARENT_NAME:
            parent, state = _said(head)
            break
    else:
        parent, state = None, b""
    if parent is None:
        if not exports:
            return None
        id_ = os.urandom(16).hex()
        sampled = is_sampled(id_, seen.sample)
        return Trace(id_, "", new_span_id(), sampled, sampled)
    id_, span, sampled = parent
    # What exports nothing must not stand between the client's span and the engine's.
    own = new_span_id() if exports else span
    return Trace(id_, span, own, sampled, sampled and exports, state)


def is_sampled(trace_id: str, share: float) -> bool:
    """Whether a trace that begins here is one of the `share` that are exported; the same everywhere for one id."""
    return (int(trace_id[16:], 16) >> 1) < int(share * _HALF)


def _said(head: RequestHead) -> tuple[tuple[str, str, bool] | None, bytes]:
    """What the client says of its trace: id, span and whether it is sampled; and its `tracestate`."""
    parents: list[bytes] = []
    states: list[bytes] = []
    for name, value in head.headers:
        if name == _PARENT_NAME:
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    parent = parse_parent(parents[0]) if len(parents) == 1 else None
    if parent is None:
        return None, b""
    state = b",".join(states)
    return parent, state if len(state) <= MAX_STATE_BYTES and state.isascii() else b""


def parse_parent(value: bytes) -> tuple[str, str, bool] | None:
    """Trace id, span id and whether it is sampled; none for what the specification has a reader ignore."""
    found = _PARENT.fullmatch(value)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == _FORBIDDEN_VERSION or (version == b"00" and more is not None):
        return None
    if trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return trace.decode(), span.decode(), bool(int(flags, 16) & SAMPLED)
