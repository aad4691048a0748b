"""The bodies that are forms, on their way from a client to an engine: never in memory beyond FORM_HELD_BYTES.

The model's name may come after the file, so a form is read whole before anybody is asked: what is longer waits in a
file without a name, and is sent from there, again if it must be. But for the model's name every byte is the client's.
"""

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from typing import Protocol

import trio

from llmgw.router.fields import Fields
from llmgw.router.heads import RequestHead, bad_request
from llmgw.router.limits import BODY_TOTAL_S, FORM_HELD_BYTES, MAX_FORM_BYTES, MAX_FORMS_BYTES
from llmgw.router.multipart import FormReader, boundary_of, is_form
from llmgw.router.ports import Refusal
from llmgw.router.requests import FORM_FIELDS, read_form
from llmgw.router.routes import Forms, Route

_PASSED = frozenset({b"anthropic-version", b"anthropic-beta"})
_VERSION = b"anthropic-version"
_DEFAULT_VERSION = b"anthropic-version: 2023-06-01\r\n"
"""Named for clients that do not: Anthropic's own API refuses a request without one."""


class Body(Protocol):
    """Where a request's body comes from: a client's connection."""

    async def read_some(self, head: RequestHead, *, until: float) -> bytes | None:
        """The next bytes, none at the end; see `ClientConnection.read_some`."""


class Form:
    """A form that was read whole; `close` gives back the room it takes."""

    def __init__(
        self,
        content_type: bytes,
        body: memoryview,
        model: tuple[int, int],
        fields: Fields,
        on_close: Callable[[], None],
    ) -> None:
        """`model` is where in `body` the model's name is."""
        self.content_type = content_type
        """As the client wrote it, boundary and all."""
        self.fields = fields
        self.size = len(body)
        self._body = body
        self._model = model
        self._on_close = on_close

    def length_with(self, name: str) -> int:
        """Bytes of the form with this model's name."""
        start, end = self._model
        return self.size - (end - start) + len(name.encode())

    def parts(self, name: str) -> tuple[memoryview, ...]:
        """The form with this model's name, in pieces."""
        start, end = self._model
        return (self._body[:start], memoryview(name.encode()), self._body[end:])

    def close(self) -> None:
        """It is needed no more. The file goes when the last connection that sends it does."""
        self._on_close()


class FormReading:
    """Reads the forms of one router, and holds them to a share of the disk."""

    def __init__(self, held_bytes: int = FORM_HELD_BYTES, all_bytes: int = MAX_FORMS_BYTES) -> None:
        self._held_bytes = held_bytes
        self._all_bytes = all_bytes
        self.on_disk_bytes = 0
        """Of all forms being read or relayed."""

    def wanted(self, head: RequestHead, route: Route) -> bool:
        """Whether the body is a form; raises Refusal (400) for one that should be and is none."""
        form = is_form(_content_type(head))
        if not form and route.forms is Forms.ALWAYS:
            raise Refusal(400, f"{route.path} takes multipart/form-data.", code="bad_request")
        return form

    async def read(self, conn: Body, head: RequestHead) -> Form:
        """The request's form; raises Refusal (400, 408, 413, 503) and Gone."""
        if head.content_length > MAX_FORM_BYTES:
            raise _too_long()
        content_type = _content_type(head)
        reader = FormReader(boundary_of(content_type), FORM_FIELDS)
        spool = _Spool(self)
        try:
            held = await self._receive(conn, head, reader, spool)
            reader.finish()
            fields = read_form(reader.values)
            body = memoryview(held) if not spool.size else await trio.to_thread.run_sync(spool.whole, held)
        except BaseException:
            spool.close()
            raise
        return Form(content_type, body, reader.spans["model"], fields, spool.close)

    async def _receive(self, conn: Body, head: RequestHead, reader: FormReader, spool: "_Spool") -> bytearray:
        """Read it all; what is returned has not been written to the spool."""
        held, until = bytearray(), time.monotonic() + BODY_TOTAL_S
        while (part := await conn.read_some(head, until=until)) is not None:
            reader.feed(part)
            held += part
            if spool.size + len(held) > MAX_FORM_BYTES:
                raise _too_long()
            if len(held) > self._held_bytes:
                self._take_room(spool, len(held))
                await _on_disk(spool.write, held)
                held = bytearray()
        if spool.size:
            self._take_room(spool, len(held))
        return held

    def _take_room(self, spool: "_Spool", count: int) -> None:
        if self.on_disk_bytes + count > self._all_bytes:
            raise _no_room("Too many long forms are on their way at once; try again shortly.")
        self.on_disk_bytes += count
        spool.room += count


class _Spool:
    """A file without a name."""

    def __init__(self, reading: FormReading) -> None:
        self._reading = reading
        self._file = -1
        self.size = 0
        self.room = 0
        """Bytes it counts for."""

    def write(self, data: bytearray) -> None:
        """Add to the file; raises OSError."""
        if self._file < 0:
            with tempfile.TemporaryFile(prefix="llmgw-form-") as file:
                self._file = os.dup(file.fileno())
        view = memoryview(data)
        while view:
            count = os.write(self._file, view)
            view = view[count:]
            self.size += count

    def whole(self, rest: bytearray) -> memoryview:
        """All of it, with `rest` at its end, as memory that the kernel may drop and read again; raises Refusal."""
        try:
            self.write(rest)
            found = memoryview(mmap.mmap(self._file, self.size, access=mmap.ACCESS_READ))
        except OSError as error:
            raise _full(error) from None
        self._end()
        return found

    def close(self) -> None:
        """Give back what it counts for; harmless when repeated."""
        self._end()
        self._reading.on_disk_bytes -= self.room
        self.room = 0

    def _end(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


async def _on_disk(write: Callable[[bytearray], None], data: bytearray) -> None:
    try:
        await trio.to_thread.run_sync(write, data)
    except OSError as error:
        raise _full(error) from None


def passed_headers(head: RequestHead) -> bytes:
    """Lines of a client of Anthropic's API that are for whoever serves it, a version among them in any case."""
    lines, versions = b"", 0
    for name, value in head.headers:
        if name in _PASSED:
            lines += name + b": " + value + b"\r\n"
            versions += name == _VERSION
    if versions > 1:
        raise bad_request("The header anthropic-version came twice.")
    return lines if versions else lines + _DEFAULT_VERSION


def _content_type(head: RequestHead) -> bytes:
    found = [value for name, value in head.headers if name == b"content-type"]
    if len(found) > 1:
        raise bad_request("The header content-type came twice.")
    return found[0] if found else b""


def _too_long() -> Refusal:
    return bad_request(f"The form is longer than {MAX_FORM_BYTES} bytes.", 413)


def _full(error: OSError) -> Refusal:
    return _no_room(f"The router has nowhere to keep a long form: {error.strerror}.")


def _no_room(message: str) -> Refusal:
    return Refusal(503, message, type="service_unavailable_error", code="no_room_for_forms", retry_after_s=5.0)
