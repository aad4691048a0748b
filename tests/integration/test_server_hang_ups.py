"""SIGHUP to a server that speaks TLS: routers are told anew, and a full disk ends nothing."""

import logging
import signal
from pathlib import Path

import pytest
import trio

from llmgw.control.client_tls import ClientCertificate
from llmgw.control.server import _hear_hang_ups
from llmgw.core.config import ClientTls
from llmgw.core.layout import ServerLayout
from tests.support.certificates import TestAuthority
from tests.support.waiting import until


@pytest.mark.trio
async def test_routers_that_cannot_be_told_do_not_end_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = ServerLayout(data=tmp_path)
    leaf = TestAuthority(tmp_path).leaf("localhost")
    certificate = ClientCertificate(ClientTls(certificate=str(leaf.certificate), key=str(leaf.key)), layout)
    caplog.set_level(logging.WARNING)
    async with trio.open_nursery() as process:
        await process.start(_hear_hang_ups, certificate)
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: "routers cannot be told" in caplog.text)
        layout.run.mkdir()
        signal.raise_signal(signal.SIGHUP)
        await until(layout.client_tls.exists)
        process.cancel_scope.cancel()
