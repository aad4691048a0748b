"""Names in a manifest never leave their directory; pickles and code are known by name and by their first bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.errors import InvalidInput
from llmgw.core.weights import (
    Manifest,
    SetFile,
    check_file_name,
    check_manifest,
    refused_magic,
    refused_name,
    split_parts,
)


@pytest.mark.parametrize("name", ["m.gguf", "a/b/c.safetensors", "Modell ü.gguf", "CON", "a" * 200])
def test_ordinary_names_pass(name: str) -> None:
    check_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "/x", "../x", "a/../../b", "a//b", "./x", "a/", "x\0y", "x\ny", "x\x1b[1m", "a\\b", "a" * 300, ".hidden"),
        *("a/" * 9 + "b", "m.gguf.part", "m.gguf.part.json", "\ud800", ".done", "é" * 130),
    ],
)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="files"):
        check_file_name(name)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab/.\\\0 \n-é"), max_size=20))
def test_no_accepted_name_leaves_its_directory(name: str) -> None:
    try:
        check_file_name(name)
    except InvalidInput:
        return
    assert not name.startswith("/")
    assert ".." not in name.split("/")
    assert "\0" not in name


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "1 to"),
        ((SetFile(name="a"), SetFile(name="a")), "twice"),
        ((SetFile(name="a"), SetFile(name="a/b")), "same name"),
        ((SetFile(name="a", bytes=-1),), "not a size"),
        ((SetFile(name="a", bytes=1 << 60),), "not a size"),
        ((SetFile(name="a", sha256="xy"),), "not a sha256"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(files: tuple[SetFile, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_manifest(Manifest(id="x", source="sim:x", files=files))


def test_a_main_file_is_one_of_the_files() -> None:
    with pytest.raises(InvalidInput, match="main"):
        check_manifest(Manifest(id="x", source="sim:x", files=(SetFile(name="a"),), main="b"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "x.PT", "a.pkl", "m.ckpt", "modeling_x.py", "k.so"])
def test_pickles_and_code_are_refused_by_name(name: str) -> None:
    assert "allow_pickle" in (refused_name(name) or "")


@pytest.mark.parametrize(
    ("name", "head", "why"),
    [
        ("m.gguf", b"PK\x03\x04aaaa", "zip"),
        ("m.safetensors", b"PK\x03\x04aaaa", "zip"),
        ("m.safetensors", b"\x80\x04\x95\x00\x00\x00\x00\x00", ""),  # a JSON header of 9 MB
        ("m.safetensors", b"\xff" * 8, "not safetensors"),
        ("tokenizer.model", b"\x80\x04\x95\x00\x00\x00\x00\x00", "pickle"),
        ("m.gguf", b"<html>ab", "not GGUF"),
        ("m.gguf", b"GGUF\3\0\0\0", ""),
        ("x.dat", b"\x7fELF\2\1\1\0", "program"),
        ("m.safetensors", b"\x10\0\0\0\0\0\0\0", ""),
    ],
)
def test_content_is_known_by_its_first_bytes(name: str, head: bytes, why: str) -> None:
    refusal = refused_magic(name, head)
    if why:
        assert refusal is not None
        assert why in refusal
    else:
        assert refusal is None


def test_a_split_gguf_is_all_its_parts() -> None:
    assert split_parts("q/m-00002-of-00003.gguf") == tuple(f"q/m-0000{i}-of-00003.gguf" for i in (1, 2, 3))
    assert split_parts("m.gguf") == ("m.gguf",)
    with pytest.raises(InvalidInput, match="parts"):
        split_parts("m-00001-of-99999.gguf")
