"""The border between bytes of a node and the control plane: every refusal becomes a gRPC status with its sentence."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import grpclib.server
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from llmgw.core.errors import LlmgwError
from llmgw.core.wire_limits import DecodeError, FrameTooLarge, M, decode, read_frame

log = logging.getLogger("llmgw.agents")

_STATUS_BY_CODE = {
    "invalid": Status.INVALID_ARGUMENT,
    "not_found": Status.NOT_FOUND,
    "conflict": Status.FAILED_PRECONDITION,
    "not_allowed": Status.PERMISSION_DENIED,
    "unauthenticated": Status.UNAUTHENTICATED,
    "unavailable": Status.UNAVAILABLE,
}


async def receive(stream: grpclib.server.Stream[M, Any], message_type: type[M], *, max_bytes: int) -> M | None:
    """The next message of `stream`, or None when the peer ended it; raises DecodeError (FrameTooLarge unread)."""
    body = await read_frame(stream._stream.recv_data, max_bytes=max_bytes)
    return None if body is None else decode(message_type, body)


def status_of(error: LlmgwError) -> Status:
    """The gRPC status an error travels under."""
    if isinstance(error, FrameTooLarge):
        return Status.RESOURCE_EXHAUSTED
    if isinstance(error, DecodeError):
        return Status.INVALID_ARGUMENT
    return _STATUS_BY_CODE.get(error.code, Status.INTERNAL)


@contextlib.contextmanager
def errors_as_status() -> Iterator[None]:
    """Turn whatever a call raises into a GRPCError; an unforeseen one is logged here and tells the peer nothing."""
    try:
        yield
    except GRPCError:
        raise
    except LlmgwError as error:
        raise GRPCError(status_of(error), error.message) from error
    except Exception as error:
        # The outermost border of a peer's call: one node's trouble must not reach the others' streams.
        log.exception("a call on the agent port failed")
        raise GRPCError(Status.INTERNAL, "the control plane failed at this call; its log says why") from error
