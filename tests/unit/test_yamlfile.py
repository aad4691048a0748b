"""YAML of operators: what is wrong is named with file and line, and no page of it grows."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import Model
from llmgw.core.errors import InvalidInput
from llmgw.core.yamlfile import decode_yaml


class Inner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    count: int = 0


class Outer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    listen: str = ""
    version: str | None = None
    ratio: float = 0.0
    on: bool = False
    inner: tuple[Inner, ...] = ()
    names: dict[str, str] = {}


def decode(text: str) -> Outer:
    return decode_yaml(text.encode(), Outer, where="f.yaml")


def test_a_page_is_read() -> None:
    outer = decode("listen: 8000\nversion: 1.10\nratio: 2\non: yes\ninner:\n  - {name: 007, count: 7}\nnames: {a: 1}\n")
    assert outer == Outer(
        listen="8000", version="1.10", ratio=2.0, on=True, inner=(Inner(name="007", count=7),), names={"a": "1"}
    )


@pytest.mark.parametrize(
    ("text", "start", "part"),
    [
        ("listen: a\nlistn: b\n", "f.yaml:2: ", "did you mean 'listen'"),
        ("ratio: 1\n\ninner:\n- name: a\n  cont: 1\n", "f.yaml:5: ", "unknown key 'cont'"),
        ("inner:\n- name: a\n- name: b\n  count: many\n", "f.yaml:4: ", "inner[1].count: Expected `int`, got `str`"),
        ("inner:\n- count: 1\n", "f.yaml:2: ", "missing required field `name`"),
        ("listen: a\nlisten: b\n", "f.yaml:2: ", "given twice"),
        ("a: [1\nb: 2\n", "f.yaml:2: ", "not YAML"),
        ("listen: &x a\nversion: *x\n", "f.yaml:1: ", "anchors"),
        ("listen: !!python/object:os.system a\n", "f.yaml:1: ", "cannot be read"),
        ("listen: !x a\n", "f.yaml:1: ", "tag"),
        ("", "f.yaml: ", "is empty"),
        ("- a\n", "f.yaml:1: ", "Expected `object`, got `array`"),
        ("? [a]\n: b\n", "f.yaml:1: ", "a key is plain text"),
        ("\x00", "f.yaml", ""),
        ("ratio: .inf\nlisten: [" + "[" * 5000, "f.yaml", ""),
        ("names:\n  a: b\n  c: [1]\n", "f.yaml:", "Expected `str`, got `array`"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, start: str, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(text)
    assert caught.value.message.startswith(start)
    assert part in caught.value.message


def test_a_billion_laughs_end_early() -> None:
    text = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    with pytest.raises(InvalidInput):
        decode_yaml(text.encode(), dict[str, object], where="f")


def test_not_utf8_and_too_large() -> None:
    with pytest.raises(InvalidInput, match="UTF-8"):
        decode_yaml(b"listen: \xff", Outer, where="f")
    with pytest.raises(InvalidInput, match="larger"):
        decode_yaml(b"#" * (1024 * 1024 + 1), Outer, where="f")


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-[]{}&*!#'\"\n ,|>?%@`~0189.", max_size=60).map(str.encode))
)
def test_no_input_does_anything_but_decode_or_be_refused(data: bytes) -> None:
    try:
        decode_yaml(data, Outer, where="f")
    except InvalidInput:
        pass


def test_the_example_of_a_model_file() -> None:
    text = """
name: qwen2.5-7b
aliases: [qwen]
source: hf:Qwen/Qwen2.5-7B-Instruct@abc
context_length: 32768
scaling: {min: 1, max: 2}
profiles:
  - {name: one-h100, engine: llamacpp, gpu_class: h100-80g, tp: 1, priority: 10, args: ["--flash-attn"]}
"""
    model = decode_yaml(text.encode(), Model, where="m")
    assert model.profiles[0].gpu_class == "h100-80g"
    assert model.scaling.max == 2
