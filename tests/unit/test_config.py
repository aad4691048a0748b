"""`server.yaml`: typed, checked before anything is touched, every mistake named with its source."""

from pathlib import Path

import pytest

from llmgw.core.config import ServerConfig, load_server_config
from llmgw.core.docstrings import field_docs
from llmgw.core.errors import InvalidInput


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    return path


def test_paths_are_taken_from_the_files_directory(tmp_path: Path) -> None:
    config = load_server_config(
        write(tmp_path, "data: .\nhf_token_file: hf\nadmin_tokens: [{name: ci, role: viewer, token_file: ci.token}]\n"),
        {},
    )
    assert config.data_path == tmp_path
    assert config.hf_token_file == str(tmp_path / "hf")
    assert config.admin_tokens[0].token_file == str(tmp_path / "ci.token")
    assert config.database_file == ""
    assert config.address("listen").port == 8080


def test_a_path_may_begin_with_the_accounts_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    tls = "client: {tls: {certificate: ~/c.pem, key: k.pem}}\n"
    config = load_server_config(write(tmp_path, f"data: ~/llmgw\nhf_token_file: ~/hf\n{tls}"), {})
    assert (config.data, config.hf_token_file) == ("/home/alice/llmgw", "/home/alice/hf")
    assert config.client.tls is not None
    assert (config.client.tls.certificate, config.client.tls.key) == ("/home/alice/c.pem", str(tmp_path / "k.pem"))


@pytest.mark.case("C29")
def test_the_environment_stands_in_and_is_named_when_wrong(tmp_path: Path) -> None:
    path = write(tmp_path, "data: .\nlisten: 8000\n")
    assert load_server_config(path, {"LLMGW_LISTEN": ":81"}).address("listen").port == 81
    assert load_server_config(path, {}).listen == "8000"
    with pytest.raises(InvalidInput, match=r"^LLMGW_LISTEN: '' is not an address"):
        load_server_config(path, {"LLMGW_LISTEN": ""})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("listen: 1\n", "missing required field `data`"),
        ("data: ''\n", "data: is empty"),
        ("data: .\nlisten: localhost\n", "listen: 'localhost' is not an address"),
        ("data: .\nadmin: 10.0.0.1:9090\n", "is not loopback"),
        ("data: .\nrouters: 0\n", "outside 1 to 64"),
        ("data: .\ndatabase: mysql://x\n", "not a postgresql:// URL"),
        ("data: .\ndatabase: postgresql://x\ndatabase_file: y\n", "beside database_file"),
        ("data: .\nadmin_users: {alice: root}\n", "Invalid enum value 'root'"),
        (
            "data: .\nadmin_tokens: [{name: a, role: viewer, token_file: x}, {name: a, role: viewer, token_file: y}]\n",
            "same name",
        ),
        ("data: .\nclient: {trusted_proxies: [10.0.0.1/8]}\n", "client.trusted_proxies: '10.0.0.1/8' has bits beyond"),
        (
            "data: .\nclient: {trusted_proxies: [lb.lan]}\n",
            "client.trusted_proxies: 'lb.lan' is neither an address nor",
        ),
        ("data: .\nclient: {trusted_proxies: [0.0.0.0/0]}\n", "'0.0.0.0/0' is everybody"),
        ("data: .\ndatabase: postgresql://[bad\n", "database: is not a postgresql:// URL"),
        ("data: .\nhf_endpoint: huggingface.co\n", "hf_endpoint: 'huggingface.co' is not the address of a hub"),
        ("data: .\nlog_level: verbose\n", "'verbose'; known are debug, error, info, warning"),
        ("data: .\nadmin_users: {alice: root}\n", "'root'; known are admin, operator, viewer"),
        ("data: .\nlisten: 9090\n", "listen and admin are both on port 9090"),
        ("data: .\nadvertise: gateway.lan:9443\n", "advertise: 'gateway.lan:9443' is not the name or address"),
        ("data: ~nobody-of-this-name/x\n", "begins with the home of an account that is not here"),
        ("data: .\nroutres: 2\n", "server.yaml:2: unknown key 'routres'; did you mean 'routers'?"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_server_config(write(tmp_path, text), {})
    assert part in caught.value.message
    assert "server.yaml" in caught.value.message


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"server.yaml: cannot be read: No such file"):
        load_server_config(tmp_path / "server.yaml", {})


def test_every_key_has_its_sentence() -> None:
    assert set(field_docs(ServerConfig)) == set(ServerConfig.__struct_fields__)
