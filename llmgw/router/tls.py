"""TLS on the reactor's sockets: one `recv` or `send` that never blocks, whatever records the peer cuts its bytes into.

The reactor knows two outcomes, bytes and BlockingIOError; OpenSSL's "want read" and "want write" become the second.
A `recv` takes one whole record, and OpenSSL reads no further by itself: no decrypted byte stays behind, and what is
left is in the kernel, where epoll sees it. A `send` that blocked is repeated with the same bytes or more of them, which
is what every caller of a non-blocking `send` does, and what OpenSSL asks for.
"""

import contextlib
import os
import socket
import ssl
import stat
from pathlib import Path

import trio

RECORD_BYTES = 16 * 1024
"""The most plaintext a TLS record carries."""
AHEAD_BYTES = 64 * 1024
"""The most that is read ahead of who waits for it."""
ALPN = ["http/1.1"]


MAX_CA_FILE_BYTES = 4 * 1024 * 1024
"""A longer file is no file of authorities: the system's own, with all there are, is a quarter of a megabyte."""
CONTEXT_LIFE_S = 3600.0
"""Authorities are read again after this long, so that the system's updates arrive."""


class TlsFailure(OSError):
    """A peer could not be spoken to securely; the message is a sentence."""


class PeerFailure(TlsFailure):
    """The peer is why, and the message names nothing of this machine."""


class TlsSocket:
    """A connected, non-blocking socket under TLS, with the calls the data plane makes on plain ones."""

    __slots__ = ("_ahead", "_ended", "_read", "_sock", "_write")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None = None) -> None:
        """Take the socket over, as a server unless `server_hostname` says whom we call. Raises OSError."""
        sock.getpeername()  # one that is reset already is left to the caller, still whole
        # Closing it early, or having it closed under us, must not look like a proper end.
        self._sock = context.wrap_socket(
            sock,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
        self._read = self._sock.recv
        self._write = self._sock.send
        self._ahead = b""
        self._ended = False

    def fileno(self) -> int:
        """The descriptor."""
        return self._sock.fileno()

    def handshake(self) -> bool | None:
        """Go on with the handshake: none when it is done, else whether it waits to read (or else to write).

        Raises ssl.SSLError and OSError.
        """
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLWantWriteError:
            return False
        return None

    def recv(self, _size: int, /) -> bytes:
        """One record's bytes, empty once the peer said that nothing follows.

        Raises BlockingIOError, and TlsFailure for a connection that broke off. A record is never taken in part, so the
        size asked for is not heeded.
        """
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        if self._ended:
            return b""
        try:
            return self._read(RECORD_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except OSError as error:
            raise TlsFailure("the connection broke off") from error

    def send(self, data: bytes | memoryview, /) -> int:
        """How much was taken; raises BlockingIOError when that is nothing, and OSError."""
        try:
            if len(data) <= RECORD_BYTES:
                return self._write(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        # A record at a time, so that a slow reader's progress shows.
        sent, view = 0, memoryview(data)
        while sent < len(data):
            try:
                sent += self._write(view[sent : sent + RECORD_BYTES])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if sent:
                    return sent
                raise BlockingIOError from None
        return sent

    def ended(self) -> bool:
        """Whether the peer said goodbye. Reads ahead what it said before, within bounds, for `recv` to give out."""
        while not self._ended and len(self._ahead) < AHEAD_BYTES:
            try:
                data = self._read(RECORD_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except OSError:
                data = b""
            self._ended = not data
            self._ahead += data
        return self._ended

    def plain(self) -> socket.socket:
        """The socket below, for a peer that spoke no TLS; this object is of no use afterwards."""
        sock = socket.socket(fileno=self._sock.detach())
        sock.setblocking(False)
        return sock

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the socket below."""
        self._sock.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End our side properly: the peer knows that nothing is missing."""
        with contextlib.suppress(OSError, ValueError):
            self._sock.unwrap()  # it sends our goodbye; the peer's is not waited for
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Close the descriptor without a goodbye."""
        self._sock.close()


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS for clients, from PEM files; raises TlsFailure with a sentence that names the file."""
    for path, what in ((certificate, "certificate"), (key, "key")):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise TlsFailure(f"the {what} {path} cannot be read: {error.strerror}") from None
        if what == "key" and b"ENCRYPTED" in text:
            raise TlsFailure(
                f"the key {path} is encrypted: nobody is there to type its password, so store it plain, 0600"
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _bound(context)
    try:
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFailure(f"the key {key} is not the one of the certificate {certificate}") from None
        raise TlsFailure(
            f"{certificate} and {key} are not a certificate and its key in PEM ({_reason(error)})"
        ) from None
    except (OSError, ValueError) as error:
        raise TlsFailure(f"{certificate} and {key} cannot be used: {error}") from None
    return context


def provider_context(ca_file: str = "") -> ssl.SSLContext:
    """TLS towards providers, verified against the system's authorities or those in `ca_file`; raises TlsFailure.

    It reads files for some 30 ms: called in a thread.
    """
    authorities = _read_authorities(ca_file) if ca_file else None
    try:
        context = ssl.create_default_context(cadata=authorities)
    except ssl.SSLError:
        raise TlsFailure(f"{ca_file} holds no certificates in PEM") from None
    _bound(context)
    return context


def _read_authorities(path: str) -> str:
    """The text of a file in the catalog, which may name anything: a pipe would never end, a device never stop."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TlsFailure(f"{path} is no regular file")
            data = file.read(MAX_CA_FILE_BYTES + 1)
    except TlsFailure:
        raise
    except OSError as error:
        raise TlsFailure(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_CA_FILE_BYTES:
        raise TlsFailure(f"{path} is longer than {MAX_CA_FILE_BYTES // 1024} KiB")
    if b"-----BEGIN CERTIFICATE-----" not in data:  # of an empty file the library would make the system's authorities
        raise TlsFailure(f"{path} holds no certificates in PEM")
    # What stands between certificates may be in any encoding; they themselves are ASCII.
    return data.decode("ascii", "ignore")


class ProviderContexts:
    """Contexts towards providers, made once for every file of authorities."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, tuple[int, int] | None, ssl.SSLContext]] = {}

    async def of(self, ca_file: str) -> ssl.SSLContext:
        """The context for the authorities in `ca_file`, the system's when it is empty; raises TlsFailure."""
        now, mark = trio.current_time(), _mark(ca_file)
        made = self._made.get(ca_file)
        if made is not None and now - made[0] < CONTEXT_LIFE_S and made[1] == mark:
            return made[2]
        context = await trio.to_thread.run_sync(provider_context, ca_file)
        self._made[ca_file] = (now, mark, context)
        return context


def _mark(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path) if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino) if status else None


def peer_failure(error: OSError, host: str) -> PeerFailure:
    """Why a provider's handshake failed, as a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return PeerFailure(f"the certificate shown by {host} is refused: {error.verify_message.rstrip('.')}")
    if isinstance(error, ssl.SSLError):
        return PeerFailure(f"no TLS connection to {host}: {_reason(error)}")
    return PeerFailure(f"{host} ended the TLS handshake: {error.strerror or error}")


def _bound(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(ALPN)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
