"""Tokens pass in C where that was built, else in Python: a test that uses `either_pass` runs by both."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from llmgw.router import events, express, reactor, upstream
from llmgw.router.token_pass import TokenPass, loaded

Kind = Literal["c", "python"]


def in_c() -> TokenPass:
    """The module in C; skips the test where it was not built."""
    module, why = loaded()
    if module is None:
        pytest.skip(f"tokens pass in Python here: {why}")
    return module


@contextmanager
def passing_by(kind: Kind) -> Iterator[None]:
    """Reactors and streams go this way as long as it is open."""
    module = in_c() if kind == "c" else None
    with pytest.MonkeyPatch.context() as patched:
        for user in (events, express, reactor, upstream):
            patched.setattr(user, "TOKEN_PASS", module)
        yield


@pytest.fixture(scope="module", params=["c", "python"])
def either_pass(request: pytest.FixtureRequest) -> Iterator[None]:
    """The module's tests once by each."""
    with passing_by(request.param):
        yield
