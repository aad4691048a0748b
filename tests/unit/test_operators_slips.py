"""Slips of the hand in settings, names and files: the answer says what would do."""

from pathlib import Path

import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import Usage
from llmgw.api.targets import ServerTarget
from llmgw.api.types import BandChange
from llmgw.control import bands, settings
from llmgw.core.catalog import Model
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.yamlfile import decode_yaml


@pytest.mark.parametrize(
    ("key", "raw", "said"),
    [
        ("router.timeouts.queue", b'"5s"', 'router.timeouts.queue: "5s" is not a number; the default is 30.0'),
        ("router.timeouts.queue", b"true", "router.timeouts.queue: true is not a number; the default is 30.0"),
        ("router.request_log.bytes", b'"32MiB"', '"32MiB" is not a whole number; the default is 33554432'),
        ("router.request_log.files", b"1.5", "1.5 is not a whole number; the default is 4"),
        ("router.scoring.sticky", b'"yes"', '"yes" is not true or false; the default is true'),
        ("router.request_log.keep", b"7", '7 is not a text; the default is "all"'),
    ],
)
def test_a_value_of_another_kind_is_refused_in_words(key: str, raw: bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings.decode(key, raw)
    assert caught.value.message.endswith(said)


def test_a_setting_that_is_written_almost_right_is_found() -> None:
    with pytest.raises(NotFound, match=r"did you mean router\.timeouts\.queue\?"):
        settings.kind_of("router.timeouts.quue")


def test_the_word_for_no_band_is_no_bands_name() -> None:
    with pytest.raises(InvalidInput, match=r"name: 'none' means that .* names no band"):
        bands._checked("none", BandChange(priority=1))


@pytest.mark.parametrize("name", ["no", "on", "Yes", "true", "1e3", "2026-01-31", "0x10", "12:30"])
def test_a_plain_word_in_the_place_of_a_name_is_that_name(name: str) -> None:
    text = f"name: {name}\nsource: sim:x\nprofiles: [{{name: {name}, engine: sim}}]\n"
    model = decode_yaml(text.encode(), Model, where="model.yaml")
    assert (model.name, model.profiles[0].name) == (name, name)


def test_a_place_that_takes_true_or_false_still_does() -> None:
    model = decode_yaml(b"name: a\nstopped: yes\nmax_output: null\n", Model, where="model.yaml")
    assert (model.stopped, model.max_output) == (True, None)
    with pytest.raises(InvalidInput, match=r"model\.yaml:1: name: Expected `str`, got `null`"):
        decode_yaml(b"name: ~\n", Model, where="model.yaml")


def test_an_empty_name_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    client = AdminClient(ServerTarget(socket=tmp_path / "nobody.sock"))
    for ask in (lambda: client.model(""), lambda: client.setting(""), lambda: client.revoke_key("")):
        with pytest.raises(Usage, match="is empty: give one"):
            ask()
