"""The demo's two configuration files belong to the operator too: what cannot be read is never written over."""

from pathlib import Path

import pytest
import yaml

from llmgw.core.errors import InvalidInput
from llmgw.demo.files import DemoFiles, DemoPorts

PORTS = DemoPorts(agents=9443, mirror=9470)


def write(files: DemoFiles) -> None:
    files.write_configs(port=8080, admin_port=9090, ports=PORTS, node="n1")


def test_what_an_operator_added_is_kept_beside_the_demos_own(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    write(files)
    files.server_config.write_text("history: {memory_mb: 16}\nlisten: 127.0.0.1:1\n")
    write(files)
    kept = yaml.safe_load(files.server_config.read_text())
    assert (kept["history"], kept["listen"]) == ({"memory_mb": 16}, "127.0.0.1:8080")


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    files.server_config.write_text("# nothing yet\n")
    write(files)
    assert yaml.safe_load(files.server_config.read_text())["listen"] == "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"listen: [1\n", r"server\.yaml:2: is not YAML \(.*\); mend it, or remove it"),
        (b"- listen\n", r"server\.yaml: holds no keys; mend it, or remove it"),
        (b"listen: \xff\n", r"server\.yaml: is not YAML; mend it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path, content: bytes, said: str) -> None:
    files = DemoFiles(tmp_path)
    files.server_config.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        write(files)
    assert files.server_config.read_bytes() == content
