"""How long a body may take: one that comes slowly is taken, one that drips or stops is refused."""

from dataclasses import dataclass
from typing import cast

import msgspec
import pytest
import trio
from quart import Request
from quart_trio.wrappers.request import TrioBody
from trio.testing import MockClock

from llmgw.web.bodies import STEP_BYTES, TooLarge, TooSlow, read_body

PATIENCE_S = 60.0
MOST = 1024 * 1024


class Said(msgspec.Struct):
    """A body."""

    text: str


@dataclass
class Asked:
    """What is looked at of a request."""

    body: TrioBody
    body_timeout: float = PATIENCE_S
    max_content_length: int = MOST


async def read(text: str, piece: int, every_s: float) -> str:
    """A body of that text which comes a piece at a time, read; it says nothing more once it was refused."""
    asked = Asked(TrioBody(None, MOST))
    data = msgspec.json.encode(Said(text=text))

    async def come() -> None:
        for at in range(0, len(data), piece):
            await trio.sleep(every_s)
            asked.body.append(data[at : at + piece])
        asked.body.set_complete()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come)
        try:
            return (await read_body(cast("Request", asked), Said)).text
        except (TooSlow, TooLarge) as error:
            return error.code
        finally:
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_body_that_comes_slowly_is_taken(autojump_clock: MockClock) -> None:
    text = "x" * (MOST - 100)
    assert await read(text, STEP_BYTES, PATIENCE_S - 1) == text
    assert trio.current_time() > 50 * PATIENCE_S


@pytest.mark.trio
@pytest.mark.parametrize("piece", [1, STEP_BYTES // 70])
async def test_a_body_that_drips_is_not(autojump_clock: MockClock, piece: int) -> None:
    assert await read("x" * MOST, piece, 1.0) == "timeout"
    assert trio.current_time() == PATIENCE_S


@pytest.mark.trio
async def test_a_body_of_no_said_length_that_grows_too_large_is_refused(autojump_clock: MockClock) -> None:
    assert await read("x" * (2 * MOST), STEP_BYTES, 1.0) == "too_large"
