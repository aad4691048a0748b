"""What ended a server is one sentence: whose it is to mend, and where."""

import errno
import os
from pathlib import Path

import pytest

from llmgw.control import server
from llmgw.core.errors import Conflict, LlmgwError
from llmgw.core.layout import ServerLayout

LAYOUT = ServerLayout(data=Path("/var/lib/llmgw"))


def reason(*errors: Exception) -> LlmgwError:
    return server._reason(ExceptionGroup("", [ExceptionGroup("", errors)]), LAYOUT)


@pytest.mark.parametrize("number", server.DISK_FAULTS)
def test_a_disk_that_takes_nothing_more_is_no_fault_of_the_servers(number: int) -> None:
    told = reason(OSError(number, os.strerror(number), "/var/lib/llmgw/run/x.part")).message
    assert told.startswith(
        f"/var/lib/llmgw/run/x.part cannot be written: {os.strerror(number)}; routers and engines go on"
    )
    assert reason(OSError(number, os.strerror(number))).message.startswith("/var/lib/llmgw cannot be written: ")


def test_a_sentence_made_for_people_is_passed_on_and_anything_else_is_named() -> None:
    assert reason(Conflict("it is taken")).message == "it is taken"
    for fault in (OSError(errno.EBADF, "Bad file descriptor"), KeyError("x")):
        assert reason(fault).message.startswith(f"the server met a fault of its own ({type(fault).__name__}: {fault})")
