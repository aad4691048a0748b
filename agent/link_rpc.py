"""gRPC towards a control plane: a connection that is closed when its block is left, and messages that were checked.

The server is the one whose certificate chains to the cluster's CA and is for serving; its host name is not compared,
because only control planes hold such certificates and their addresses change more often than they do.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpclib.client
import grpclib.utils
import trio_asyncio
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from llmgw.core.errors import LlmgwError
from llmgw.core.identity import Role, peer_identity
from llmgw.core.wire_limits import MAX_FRAME_BYTES, M, decode, read_frame
from llmgw.wire.llmgw.v1 import AgentMessage, EnrollRequest, EnrollResponse, ServerMessage

# grpclib keeps the `current_task` it finds at import; from Python 3.12 on only the one of trio-asyncio knows its loop.
grpclib.utils._current_task = asyncio.current_task

CONNECT_S = 10.0
"""Address look-up, TCP and TLS together, at most."""
ENROLL_S = 30.0
CLOSE_S = 1.0
"""How long a farewell may take before the connection is cut."""


class WrongServer(LlmgwError):
    """Who answered is not a control plane of this node's cluster."""

    code = "wrong_server"


Call = grpclib.client.Stream[AgentMessage, ServerMessage]


def tls_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """TLS 1.3 towards the cluster whose CA is in the file `ca`; raises OSError and ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the module's docstring says what is checked instead
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=ca)
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


class _Protocol(H2Protocol):
    """A connection that says when it is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.gone = asyncio.Event()
        self.lost_because: BaseException | None = None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception:
            # grpclib and h2 raise what they like on frames they did not foresee: the call sees a lost stream.
            self.processor.close("The server sent what is not HTTP/2")
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost_because = exc
        self.gone.set()
        super().connection_lost(exc)

    async def closed(self) -> None:
        """Close, politely for CLOSE_S."""
        self.processor.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.gone.wait()
        except TimeoutError:
            self.transport.abort()
            await self.gone.wait()


class _Channel(grpclib.client.Channel):
    def _protocol_factory(self) -> H2Protocol:
        return _Protocol(grpclib.client.Handler(), self._config, self._h2_config)


@contextlib.asynccontextmanager
async def open_channel(
    host: str, port: int, context: ssl.SSLContext, *, cluster_id: str = ""
) -> AsyncIterator[grpclib.client.Channel]:
    """A connected channel (asyncio); raises OSError, TimeoutError, ssl.SSLError.

    A server whose certificate is not a control plane's, or not of `cluster_id`, raises WrongServer.
    """
    channel = _Channel(host, port, ssl=context)
    try:
        async with asyncio.timeout(CONNECT_S):
            protocol = await channel.__connect__()
        assert isinstance(protocol, _Protocol)
        try:
            _check_server(protocol, cluster_id)
            yield channel
        except (ConnectionResetError, StreamTerminatedError):
            if protocol.lost_because is not None:  # says more: a TLS alert about this node's certificate
                raise protocol.lost_because from None
            raise
        finally:
            await protocol.closed()
    finally:
        channel.close()


def _check_server(protocol: _Protocol, cluster_id: str) -> None:
    identity = peer_identity(protocol.connection.get_peer().cert())
    if identity is None or identity.role is not Role.SERVER:
        raise WrongServer("the server's certificate is not a control plane's")
    if cluster_id and identity.cluster_id != cluster_id:
        raise WrongServer(f"the server belongs to cluster {identity.cluster_id}, this node to {cluster_id}")


def connect_call(channel: grpclib.client.Channel) -> Call:
    """The Connect call, to be used as an async context manager."""
    return channel.request("/llmgw.v1.Agents/Connect", Cardinality.STREAM_STREAM, AgentMessage, ServerMessage)


async def receive(call: grpclib.client.Stream[Any, M], message_type: type[M]) -> M:
    """The next message; raises GRPCError with the server's status when it ended the call, DecodeError, OSError."""
    try:
        if not call._recv_initial_metadata_done:
            await call.recv_initial_metadata()
        with call._wrapper:
            body = await read_frame(call._stream.recv_data, max_bytes=MAX_FRAME_BYTES)
            if body is None:
                await call._stream.recv_trailers()
    except StreamTerminatedError as error:
        call._maybe_raise()
        raise ConnectionResetError(f"the connection was lost: {error}") from error
    if body is None:
        call._maybe_raise()
        raise GRPCError(Status.OK, "the server closed the stream")
    return decode(message_type, body)


async def enroll(host: str, port: int, context: ssl.SSLContext, request: EnrollRequest) -> EnrollResponse:
    """One Enroll call, from trio; raises GRPCError, OSError, TimeoutError, ssl.SSLError, DecodeError."""
    answer: EnrollResponse | Exception
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(ignore_loop_error)
        try:
            answer = await trio_asyncio.aio_as_trio(_enroll)(host, port, context, request)
        except Exception as error:  # carried out of the loop, whose nurseries would wrap it in groups
            answer = error
    if isinstance(answer, Exception):
        raise answer
    return answer


async def _enroll(host: str, port: int, context: ssl.SSLContext, request: EnrollRequest) -> EnrollResponse:
    async with open_channel(host, port, context) as channel, asyncio.timeout(ENROLL_S):
        call = channel.request("/llmgw.v1.Agents/Enroll", Cardinality.UNARY_UNARY, EnrollRequest, EnrollResponse)
        async with call:
            await call.send_message(request, end=True)
            return await receive(call, EnrollResponse)


def ignore_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """In place of trio-asyncio's handler, which ends the loop: what failed is seen by the call that it failed."""


def transport_sentence(error: BaseException) -> str:
    """What a failed connection means for an operator."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not one of this node's cluster ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(getattr(error, 'reason', None) or str(error)).replace('_', ' ').lower()}"
    return str(error) or type(error).__name__
