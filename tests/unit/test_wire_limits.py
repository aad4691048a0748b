"""The decoder: a valid message or DecodeError, never anything else, for any bytes; and the frame's cap."""

import struct
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.wire_limits import (
    MAX_FIELDS,
    MAX_UNKNOWN_BYTES,
    DecodeError,
    FrameTooLarge,
    decode,
    read_frame,
)
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    Card,
    EnrollRequest,
    Heartbeat,
    Hello,
    Inventory,
    LogLines,
    Sensors,
    ServerMessage,
    ShardSpec,
    ShardState,
    ShardStatus,
    StartShard,
)

SPEC = ShardSpec(
    shard_id="m-1/0", model="m", card_uuids=["GPU-1"], memory_bytes=2**40, args=["--x"], env={"A": "b", "C": "d"}
)
REAL = [
    AgentMessage(
        hello=Hello(
            node="n1",
            inventory=Inventory(cards=[Card(uuid="GPU-1", memory_total_bytes=0, healthy=True)], problems=["no driver"]),
            shards=[ShardStatus(shard_id="m-1/0", state=ShardState.READY, pid=7, spec=SPEC)],
        )
    ),
    AgentMessage(sensors=Sensors(uuids=["a", "b"], memory_used_bytes=[1.0, 2.0], power_w=[3.0, 4.0], cpu_percent=0.0)),
    AgentMessage(heartbeat=Heartbeat(seq=2**64 - 1)),
    AgentMessage(log_lines=LogLines(request_id="r", lines=["ü", ""], end=True)),
]


def well_typed(message: AgentMessage) -> bool:
    """Whether the fields that a confused parser gets wrong have their types."""
    bodies = [message.hello, message.heartbeat, message.sensors, message.shard_status, message.fetch_progress]
    assert sum(body is not None for body in [*bodies, message.log_lines, message.inventory]) <= 1
    if message.heartbeat is not None:
        return isinstance(message.heartbeat.seq, int)
    if message.sensors is not None:
        return all(isinstance(v, float) for v in message.sensors.memory_used_bytes)
    if message.hello is not None:
        return isinstance(message.hello.node, str) and all(isinstance(s, ShardStatus) for s in message.hello.shards)
    return True


@pytest.mark.parametrize("message", REAL)
def test_real_messages_survive(message: AgentMessage) -> None:
    assert decode(AgentMessage, bytes(message)) == message


def test_server_messages_survive() -> None:
    message = ServerMessage(start_shard=StartShard(spec=SPEC, engine_key="ek"))
    assert decode(ServerMessage, bytes(message)) == message


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_a_message_or_a_decode_error(data: bytes) -> None:
    for message_type in (AgentMessage, ServerMessage, EnrollRequest):
        try:
            decode(message_type, data)
        except DecodeError:
            pass


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(REAL), st.data())
def test_damaged_messages_are_a_message_or_a_decode_error(message: AgentMessage, data: st.DataObject) -> None:
    raw = bytearray(bytes(message))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["replace", "insert", "delete", "cut", "double"]))
        if change == "replace":
            raw[at] = data.draw(st.integers(0, 255))
        elif change == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        elif change == "delete" and len(raw) > 1:
            del raw[at]
        elif change == "cut":
            del raw[max(1, at) :]
        else:
            raw += raw[at:]
    try:
        decoded = decode(AgentMessage, bytes(raw))
    except DecodeError:
        return
    assert well_typed(decoded)
    assert decode(AgentMessage, bytes(decoded)) == decoded


def tag(number: int, wire_type: int) -> bytes:
    """A field's tag below number 16."""
    return bytes([number << 3 | wire_type])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(tag(1, 2) + b"\xff\xff\xff\xff\x0f" + b"ab", "claims", id="4 GiB claimed, two bytes left"),
        pytest.param(b"\x00\x01", "field number 0", id="field 0"),
        pytest.param(b"\xff" * 11, "ten bytes", id="endless number"),
        pytest.param(tag(2, 2) + b"\x0b" + tag(1, 0) + b"\xff" * 9 + b"\x7f", "64 bits", id="65-bit number"),
        pytest.param(tag(1, 3), "wire type 3", id="group"),
        pytest.param(tag(1, 7), "wire type 7", id="no wire type"),
        pytest.param(tag(1, 0) + b"\x05", "wire type 0", id="number where a message belongs"),
        pytest.param(tag(1, 2) + b"\x02" + tag(1, 0) + b"\x05", "wire type 0", id="number where a string belongs"),
        pytest.param(tag(2, 2) + b"\x03" + tag(1, 2) + b"\x01\x05", "wire type 2", id="packed where one number is"),
        pytest.param(tag(1, 2) + b"\x03" + tag(1, 2) + b"\x01\xff", "UnicodeDecodeError", id="not UTF-8"),
        pytest.param(tag(3, 2) + b"\x05" + tag(2, 2) + b"\x03abc", "8-byte", id="column of half a double"),
        pytest.param(tag(2, 2) + b"\x00" + tag(3, 2) + b"\x00", "only one", id="two bodies"),
        pytest.param(tag(1, 5) + b"\x00", "claims 4", id="cut 32-bit value"),
        pytest.param(tag(1, 2), "cut off", id="no length"),
    ],
)
def test_malformed(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode(AgentMessage, data)


@pytest.mark.parametrize(
    ("message_type", "data"),
    [
        pytest.param(Hello, b"\x32\x00" * (MAX_FIELDS + 1), id="a heap of empty shards"),
        pytest.param(Sensors, b"\x1a" + b"\x80\x80\x80\x01" + b"\x00" * 2**21, id="a huge column"),
        pytest.param(Hello, b"\xfa\x3f\xfe\xff\xff\x01" + b"z" * 4194302, id="4 MiB of an unknown field"),
        pytest.param(Hello, b"\xf8\x3f\x00" * 40_000, id="many unknown fields"),
    ],
)
def test_bombs_are_refused_at_once(message_type: type[Hello] | type[Sensors], data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(DecodeError):
        decode(message_type, data)
    assert time.process_time() - started < 1.0


def test_the_largest_allowed_message_is_decoded_within_a_second() -> None:
    started = time.process_time()
    decode(Hello, b"\x32\x02\x30\x01" * (MAX_FIELDS // 2))
    assert time.process_time() - started < 1.5


def test_fields_of_a_newer_peer_are_ignored() -> None:
    newer = bytes(REAL[0]) + b"\xfa\x3f\x03abc"
    assert decode(AgentMessage, newer) == REAL[0]
    with pytest.raises(DecodeError, match="does not know"):
        decode(AgentMessage, bytes(REAL[0]) + b"\xfa\x3f\x80\x80\x08" + b"z" * (2 * MAX_UNKNOWN_BYTES))


def reader(data: bytes) -> Callable[[int], Awaitable[bytes]]:
    """A stream of `data`."""
    rest = bytearray(data)

    async def receive(size: int) -> bytes:
        assert len(rest) >= size or not rest, "Received less data than expected"
        taken = bytes(rest[:size])
        del rest[:size]
        return taken

    return receive


@pytest.mark.trio
async def test_frames() -> None:
    receive = reader(struct.pack(">BI", 0, 3) + b"abc" + struct.pack(">BI", 0, 0))
    assert await read_frame(receive, max_bytes=3) == b"abc"
    assert await read_frame(receive, max_bytes=3) == b""
    assert await read_frame(receive, max_bytes=3) is None


@pytest.mark.trio
async def test_a_frame_over_the_cap_is_refused_before_its_body_is_read() -> None:
    asked: list[int] = []
    receive = reader(struct.pack(">BI", 0, 2**32 - 1) + b"abc")

    async def spy(size: int) -> bytes:
        asked.append(size)
        return await receive(size)

    with pytest.raises(FrameTooLarge, match="4294967295 bytes is over the limit of 4194304"):
        await read_frame(spy, max_bytes=4 * 1024 * 1024)
    assert asked == [5]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("data", "why"), [(b"\x01\x00\x00\x00\x01a", "compressed"), (b"\x00\x00", "ended"), (b"\0\0\0\0\4ab", "ended")]
)
async def test_broken_frames(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        await read_frame(reader(data), max_bytes=100)
