"""Where the client port may be, looked at before a database starts for nothing."""

import contextlib
import socket
from pathlib import Path

import pytest
import yaml

from llmgw.control.listening import check_possible, open_listener, resolve
from llmgw.core.errors import Conflict, InvalidInput
from tests.integration.test_cli_processes import llmgw
from tests.support.cluster import free_port


@pytest.mark.trio
async def test_an_address_that_routers_left_behind_serve_is_possible() -> None:
    port = free_port()
    address = await resolve("127.0.0.1", port)
    with contextlib.closing(open_listener(address, port)):
        check_possible(address)


@pytest.mark.trio
async def test_one_that_others_have_to_themselves_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = await resolve("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Conflict, match="another program listens there; stop it or choose another port"):
            check_possible(address)


@pytest.mark.trio
async def test_another_machines_address_and_nobodys_name_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"^cannot listen on 192\.0\.2\.1:1: Cannot assign requested address$"):
        check_possible(await resolve("192.0.2.1", 1))
    with pytest.raises(InvalidInput, match=r"^cannot listen on nosuch\.invalid:1: [A-Z][a-z ]+$"):
        await resolve("nosuch.invalid", 1)


@pytest.mark.case("C29")
@pytest.mark.parametrize("listen", ["nosuch.invalid:8000", "192.0.2.1:8000"])
def test_a_server_that_cannot_listen_starts_no_database(tmp_path: Path, listen: str) -> None:
    own = {key: f"127.0.0.1:{free_port()}" for key in ("admin", "agents", "mirror")}
    config = tmp_path / "server.yaml"
    config.write_text(yaml.safe_dump({"data": str(tmp_path / "data"), "listen": listen, **own}))
    done = llmgw("server", "-c", str(config))
    assert (done.returncode, done.stderr.startswith(f"llmgw server: cannot listen on {listen}: ")) == (2, True)
    assert not (tmp_path / "data" / "db").exists()
