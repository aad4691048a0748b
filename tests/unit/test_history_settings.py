"""Where history is bounded and where its past comes from: `history` in server.yaml, `monitor.prometheus.…` settings."""

from pathlib import Path

import pytest

from llmgw.control import settings
from llmgw.control.history.metrics_store import StoreSettings
from llmgw.core.config import load_server_config
from llmgw.core.errors import InvalidInput


def test_memory_is_bounded_by_default_and_by_choice(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("data: .\n")
    assert load_server_config(path, {}).history.memory_mb == 160
    path.write_text("data: .\nhistory: {memory_mb: 0}\n")
    assert load_server_config(path, {}).history.memory_mb == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("memory_mb: 5000", "history.memory_mb: 5000 is outside 0 to 4096"),
        ("memory_mb: -1", "history.memory_mb: -1 is outside 0 to 4096"),
        ("megabytes: 5", "megabytes"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(f"data: .\nhistory: {{{text}}}\n")
    with pytest.raises(InvalidInput) as caught:
        load_server_config(path, {})
    assert says in caught.value.message


def test_the_store_is_set_without_a_restart() -> None:
    assert settings.metrics_store_of({}) == StoreSettings("", "")
    stored = {
        "monitor.prometheus.url": b'"http://metrics:9090"',
        "monitor.prometheus.token_file": b'"/etc/llmgw/prometheus.token"',
    }
    assert settings.metrics_store_of(stored) == StoreSettings("http://metrics:9090", "/etc/llmgw/prometheus.token")
    # What a newer server stored and this one does not understand is the default.
    assert settings.metrics_store_of({"monitor.prometheus.url": b'"gopher://metrics"'}) == StoreSettings()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("monitor.prometheus.url", b'"metrics:9090"', "'metrics:9090' is not http://HOST:PORT or https://HOST"),
        ("monitor.prometheus.url", b"9090", "9090 is not a text"),
        ("monitor.prometheus.token_file", b'"prometheus.token"', "is not an absolute path on the servers"),
    ],
)
def test_what_will_not_do_is_refused(key: str, value: bytes, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings.decode(key, value)
    assert says in caught.value.message
    assert caught.value.field == key
