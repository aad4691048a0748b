"""A form's fields are found however it falls into pieces, and one that readers could differ on is refused."""

import itertools
from collections.abc import Iterable
from email import message_from_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.forms import Form, FormReading
from llmgw.router.heads import RequestHead, parse_head
from llmgw.router.limits import MAX_FIELD_BYTES, MAX_PART_HEAD_BYTES, MAX_PARTS
from llmgw.router.multipart import FormReader, boundary_of
from llmgw.router.ports import Refusal
from llmgw.router.routes import Route

BOUNDARY = b"--form-b0undary"
NAMES = ("model", "stream", "n")
TYPE = b"multipart/form-data; boundary=" + BOUNDARY


def part(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    """One part, up to its value's end."""
    return b"--%b\r\nContent-Disposition: form-data; name=%b%b\r\n\r\n%b\r\n" % (BOUNDARY, name, more, value)


def form(*parts: bytes) -> bytes:
    """A whole one."""
    return b"".join(parts) + b"--" + BOUNDARY + b"--\r\n"


def sound(data: bytes) -> bytes:
    """A file's part."""
    return part(b'"file"', data, b'; filename="a \\"b\\".wav"\r\nContent-Type: audio/wav')


def read(*pieces: bytes) -> FormReader:
    """A reader that was fed all of a form."""
    reader = FormReader(BOUNDARY, NAMES)
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    return reader


def cut(raw: bytes, at: Iterable[int]) -> list[bytes]:
    """`raw` in pieces."""
    edges = [0, *sorted({i % (len(raw) + 1) for i in at}), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges)]


BYTES = st.lists(
    st.sampled_from(
        [b"\r\n", b"\r", b"\n", b"--", b"\r\n--" + BOUNDARY[:-1], b"-", b"x", b'name="model"', b"\x00\xff"]
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(
    data=BYTES,
    model=st.text(alphabet="abc/é-", min_size=1, max_size=8),
    first=st.booleans(),
    lead=st.booleans(),
    at=st.lists(st.integers(0, 5000), max_size=12),
)
def test_fields_are_found_however_the_form_is_cut(
    data: bytes, model: str, first: bool, lead: bool, at: list[int]
) -> None:
    ours = [part(b'"model"', model.encode()), part(b"stream", b"true")]
    parts = [*ours, sound(data)] if first else [sound(data), *ours]
    raw = (b"\r\n" if lead else b"") + form(*parts) + b"an epilogue"
    reader = read(*cut(raw, at))
    assert reader.values == {"model": model.encode(), "stream": b"true"}
    for name, (start, end) in reader.spans.items():
        assert raw[start:end] == reader.values[name]
    # Another reader, which knows nothing of ours, has the same.
    message = message_from_bytes(b"Content-Type: " + TYPE + b"\r\n\r\n" + raw)
    named = [piece.get_param("name", header="content-disposition") for piece in message.walk()][1:]
    assert sorted(str(name) for name in named) == ["file", "model", "stream"]


def test_byte_by_byte() -> None:
    raw = form(sound(b"\r\n--\r\n--" + BOUNDARY[:-2]), part(b'"model"', b"m"), part(b'"n"', b""))
    assert read(*(bytes([byte]) for byte in raw)).values == {"model": b"m", "n": b""}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (form(part(b'"model"', b"a"), part(b'"model"', b"b")), "comes twice"),
        (form(part(b'"model"', b"a"), part(b'"model"', b"b", b'; filename="x"')), "plain"),
        (form(part(b'"mo\\del"', b"a")), "plain"),
        (form(part(b'"mod%65l"', b"a")), "plain"),
        (form(part(b'" model"', b"a")), "plain"),
        (form(part(b'"model"', b"YQ==", b"\r\nContent-Transfer-Encoding: base64")), "plain"),
        (form(part(b'"x"', b"a", b'; name="model"')), "one name"),
        (form(part(b'"x"', b"a", b"; name*=model")), "one name"),
        (form(part(b'"model"', b"a", b'\r\nContent-Disposition: form-data; name="x"')), "two headers"),
        (form(part(b'"x"', b"a", b"\r\n folded: yes")), "malformed"),
        (form(part(b'"x"', b"a", b'\nContent-Disposition: form-data; name="model"')), "malformed"),
        (form(b"--" + BOUNDARY + b"\r\n\r\nno head\r\n"), "malformed"),
        (form(b"--" + BOUNDARY + b"\r\nX: y\r\n\r\nno name\r\n"), "Content-Disposition"),
        (b"preamble\r\n" + form(part(b'"model"', b"a")), "begin with"),
        (form(part(b'"model"', b"a")).replace(b"\r\n", b"\n"), "end of its line"),
        (part(b'"model"', b"a"), "before its last boundary"),
        (form(part(b'"model"', b"a") + b"--" + BOUNDARY + b"x\r\n\r\n"), "end of its line"),
        (form(part(b'"model"', b"a" * (MAX_FIELD_BYTES + 1))), "longer than"),
        (form(part(b'"x"', b"a", b"\r\nX: " + b"y" * MAX_PART_HEAD_BYTES)), "head longer than"),
        (form(*[part(b'"x"', b"a")] * (MAX_PARTS + 1)), "more than"),
        (b"", "before its last boundary"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_form_that_is_ambiguous_or_boundless_is_refused(raw: bytes, shown: str, step: int) -> None:
    with pytest.raises(Refusal, match=shown) as refused:
        read(*(raw[i : i + step] for i in range(0, len(raw), step)))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("value", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'Multipart/Form-Data;charset=utf-8; boundary="a b:c"', b"a b:c"),
        (b"multipart/form-data", None),
        (b"multipart/form-data; boundary=", None),
        (b'multipart/form-data; boundary="a "', None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b"multipart/form-data; boundary=" + b"a" * 71, None),
        (b"multipart/form-database; boundary=a", None),
    ],
)
def test_the_boundary_is_named_once(value: bytes, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(Refusal, match="boundary"):
            boundary_of(value)
    else:
        assert boundary_of(value) == boundary


def test_no_file_is_kept_in_memory() -> None:
    reader = FormReader(BOUNDARY, NAMES)
    reader.feed(part(b'"file"', b"")[:-2])
    for _ in range(64):
        reader.feed(b"x" * 65536)
        assert len(reader._buffer) + len(reader._value) < 64  # all that it holds on to


class Source:
    """A client that sends a body in pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    async def read_some(self, head: RequestHead, *, until: float) -> bytes | None:
        """The next piece."""
        return next(self._pieces, None)


def head_of(length: int = 0, content_type: bytes = TYPE) -> RequestHead:
    """A head as the front door gives it."""
    return parse_head(
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\ncontent-type: %b\r\n\r\n" % (length, content_type)
    )


async def taken(reading: FormReading, raw: bytes, step: int = 1000) -> Form:
    """A form as the router has it."""
    return await reading.read(Source(raw[i : i + step] for i in range(0, len(raw), step)), head_of(len(raw)))


@pytest.mark.trio
@pytest.mark.parametrize("held_bytes", [0, 5_000, 1 << 20])
@pytest.mark.parametrize("first", [False, True])
async def test_a_form_is_sent_on_as_it_came_but_for_the_models_name(held_bytes: int, first: bool) -> None:
    reading = FormReading(held_bytes)
    model, file = part(b'"model"', b"alias"), sound(bytes(range(256)) * 200)
    raw = form(model, file) if first else form(file, model)
    form_ = await taken(reading, raw)
    assert form_.fields.model == "alias"
    assert reading.on_disk_bytes == (0 if held_bytes > len(raw) else len(raw))
    for name in ("alias", "another/näme"):  # a second attempt with a replica of another name
        sent = b"".join(form_.parts(name))
        assert sent == raw.replace(b"alias", name.encode())
        assert form_.length_with(name) == len(sent)
    form_.close()
    form_.close()
    assert reading.on_disk_bytes == 0


@pytest.mark.trio
async def test_forms_share_a_bounded_room_and_give_it_back() -> None:
    reading = FormReading(held_bytes=1000, all_bytes=150_000)
    raw = form(part(b'"model"', b"m"), sound(b"x" * 100_000))
    first = await taken(reading, raw)
    with pytest.raises(Refusal) as refused:
        await taken(reading, raw)
    assert (refused.value.status, refused.value.code) == (503, "no_room_for_forms")
    assert reading.on_disk_bytes == len(raw)
    first.close()
    for bad in (raw[:-20], form(sound(b"x" * 5000))):
        with pytest.raises(Refusal):
            await taken(reading, bad)
    assert reading.on_disk_bytes == 0
    (await taken(reading, raw)).close()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("n", b"0", "between"), ("n", b"1.5", "whole"), ("model", b"\xff", "UTF-8"), ("model", b"", "must provide")],
)
async def test_fields_are_checked(name: str, value: bytes, shown: str) -> None:
    others = [part(b'"model"', b"m")] if name != "model" else []
    with pytest.raises(Refusal, match=shown) as refused:
        await taken(FormReading(), form(*others, part(name.encode(), value)))
    assert refused.value.param == name


def test_which_routes_take_forms() -> None:
    reading = FormReading()
    json = head_of(content_type=b"application/json")
    assert reading.wanted(head_of(), Route.IMAGE_EDITS)
    assert not reading.wanted(json, Route.IMAGE_EDITS)
    with pytest.raises(Refusal, match="multipart/form-data"):
        reading.wanted(json, Route.TRANSCRIPTIONS)
