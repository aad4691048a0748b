"""The feed's frames survive any way of being cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.frames import FrameDecoder, FrameTooLong, encode_frame
from llmgw.core.routing import MAX_FRAME_BYTES


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(payloads: list[bytes], data: st.DataObject) -> None:
    """What is decoded does not depend on how the bytes were read."""
    stream = b"".join(map(encode_frame, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = FrameDecoder()
    received: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == payloads


def test_a_length_over_the_limit_is_refused_before_its_bytes_come() -> None:
    """Nothing is collected for a frame that will not be taken."""
    with pytest.raises(FrameTooLong):
        FrameDecoder().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_an_oversize_frame_is_not_sent() -> None:
    """The sender finds out, not the receiver."""
    with pytest.raises(FrameTooLong):
        encode_frame(bytes(MAX_FRAME_BYTES + 1))
