"""The sim engine's pure parts: faults, options, sources, text and what requests are decoded to."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.errors import InvalidInput
from llmgw.sim.faults import DEFAULT_BIG_LINE_BYTES, NO_FAULTS, Faults, parse_faults
from llmgw.sim.options import EngineOptions, engine_argv, parse_options, source_argv
from llmgw.sim.requests import Refused, decode_embeddings, decode_generation
from llmgw.sim.text import count_tokens, embedding, pieces, text_seed, words

OPTIONS = EngineOptions(names=("m", "alias"), ctx_size=100, answer_tokens=20)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", NO_FAULTS),
        ("none", NO_FAULTS),
        ("hang", Faults(hang=True)),
        ("hang-after-headers", Faults(hang_after_headers=True)),
        ("drop-before-headers", Faults(drop_before_headers=True)),
        ("drop:0", Faults(drop_after_tokens=0)),
        ("error:503", Faults(error_status=503)),
        ("drip:1.5", Faults(drip_ms=1.5)),
        ("slow-start:2", Faults(slow_start_s=2)),
        ("silent:0.5, no-usage", Faults(silent_s=0.5, no_usage=True)),
        ("loading", Faults(loading=True)),
        ("lie-usage,no-done", Faults(lie_usage=True, no_done=True)),
        ("big-line", Faults(big_line_bytes=DEFAULT_BIG_LINE_BYTES)),
        ("big-line:10", Faults(big_line_bytes=10)),
    ],
)
def test_faults_are_read(text: str, faults: Faults) -> None:
    assert parse_faults(text) == faults


@pytest.mark.parametrize(
    "text", ["explode", "drop", "drop:-1", "drop:x", "error:200", "silent:nan", "drip:", "big-line:0"]
)
def test_a_bad_fault_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=text.split(":")[0]):
        parse_faults(text)


@given(st.text(max_size=30))
@settings(max_examples=100)
def test_fault_text_never_raises_anything_else(text: str) -> None:
    try:
        parse_faults(text)
    except InvalidInput:
        pass


def test_argv_round_trips(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n\ntwo\n")
    argv = engine_argv(
        host="127.0.0.1",
        port=18000,
        model="m",
        aliases=("a", "b"),
        slots=3,
        ctx_size=512,
        api_key_file=keys,
        source="sim:rate=0,jitter=0.5,fault=no-usage",
        args=("--chunk", "2"),
    )
    options = parse_options(argv, environment={"LLMGW_ENGINE_KEY": "three"})
    assert options.names == ("m", "a", "b")
    assert (options.port, options.slots, options.ctx_size) == (18000, 3, 512)
    assert (options.rate, options.jitter, options.chunk, options.fault) == (0, 0.5, 2, "no-usage")
    assert set(options.keys) == {b"one", b"two", b"three"}
    assert not any("one" in part for part in argv)


def test_parallel_means_slots() -> None:
    assert parse_options(["--model", "m", "--parallel", "7"], environment={}).slots == 7


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--model"),
        (["--model", "m", "--rate", "nan"], "--rate"),
        (["--model", "m", "--port", "70000"], "65535"),
        (["--model", "m", "--jitter", "2"], "--jitter"),
        (["--model", "m", "--fault", "explode"], "explode"),
        (["--model", "m", "--api-key-file", "/nowhere/keys"], "/nowhere/keys"),
        (["--model", "m", "--what"], "--what"),
        (["--mod", "m"], "--mod"),
    ],
)
def test_a_bad_command_line_is_named(argv: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_options(argv, environment={})


def test_an_empty_key_file_is_refused_not_open_to_all(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(InvalidInput, match="no key"):
        parse_options(["--model", "m", "--api-key-file", str(tmp_path / "keys")], environment={})


@pytest.mark.parametrize(
    "source", ["file:/x", "sim:port=1", "sim:n,rate", "sim:rate=fast", "sim:api-key-file=/etc/passwd"]
)
def test_a_bad_source_is_refused(source: str) -> None:
    with pytest.raises(InvalidInput):
        source_argv(source)


def test_a_bare_or_named_source_is_the_defaults() -> None:
    assert source_argv("sim:") == source_argv("sim:some-name") == []
    assert source_argv("sim:some-name,rate=5") == source_argv("sim:rate=5") == ["--rate=5"]


def test_text_depends_on_seed_model_and_prompt_only() -> None:
    def start(seed: int, model: str, prompt: str) -> list[str]:
        source = words(text_seed(seed, model, prompt))
        return [next(source) for _ in range(12)]

    first = start(1, "m", "p")
    assert first == start(1, "m", "p")
    assert len({tuple(first), tuple(start(2, "m", "p")), tuple(start(1, "n", "p")), tuple(start(1, "m", "q"))}) == 4


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_pieces_join_to_their_text(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_tokens_are_words_and_marks() -> None:
    assert count_tokens("Why, is it: 読写 é?") == 8
    assert count_tokens(" \n ") == 0


def test_a_vector_has_unit_length_and_its_text_decides() -> None:
    vector = embedding(0, "m", "a", 8)
    assert math.isclose(sum(x * x for x in vector), 1)
    assert vector == embedding(0, "m", "a", 8) != embedding(0, "m", "b", 8)


@pytest.mark.parametrize(
    ("more", "tokens", "reason"),
    [
        ("", 20, "stop"),
        (',"max_tokens":5', 5, "length"),
        (',"max_tokens":20', 20, "stop"),
        (',"max_tokens":50', 20, "stop"),
        (',"max_tokens":50,"max_completion_tokens":7', 7, "length"),
        (',"max_tokens":50,"ignore_eos":true', 50, "length"),
        (',"max_tokens":1000000000000,"ignore_eos":true', 94, "length"),
        (',"sim":{"tokens":90}', 90, "stop"),
        (',"sim":{"text":"one two three"}', 3, "stop"),
    ],
)
def test_how_long_an_answer_is(more: str, tokens: int, reason: str) -> None:
    body = f'{{"messages":[{{"role":"user","content":[{{"type":"text","text":"one two"}}]}}]{more}}}'.encode()
    job = decode_generation(body, None, OPTIONS, chat=True)
    assert (job.prompt_tokens, job.tokens, job.finish_reason) == (6, tokens, reason)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not a valid request"),
        (b'{"messages": 3}', 400, "messages"),
        (b'{"messages": []}', 400, "messages"),
        (b'{"model":"other","messages":[{"role":"user","content":"x"}]}', 404, "other"),
        (b'{"messages":[{"role":"user","content":"x"}],"n":2}', 400, "n"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}', 400, "max_tokens"),
        (b'{"messages":[{"role":"user","content":"x"}],"sim":{"fault":"boom"}}', 400, "boom"),
        (b'{"messages":[{"role":"user","content":"x"}],"sim":{"spell":1}}', 400, "spell"),
        (b'{"messages":[{"role":"user","content":"x"}],"sim":{"rate":-1}}', 400, "sim.rate"),
        (b'{"messages":[{"role":"user","content":"' + b"x " * 100 + b'"}]}', 400, "context holds 100"),
        (b"[" * 100_000, 400, "not a valid request"),
    ],
)
def test_bad_requests_are_refused(body: bytes, status: int, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        decode_generation(body, None, OPTIONS, chat=True)
    assert caught.value.status == status


def test_body_beats_header_beats_default() -> None:
    options = EngineOptions(names=("m",), fault="hang")
    for sim, header, expected in (
        ("", None, Faults(hang=True)),
        ("", "no-done", Faults(no_done=True)),
        (',"sim":{"fault":"no-usage"}', "no-done", Faults(no_usage=True)),
        (',"sim":{"fault":"none"}', "no-done", NO_FAULTS),
    ):
        body = f'{{"prompt":"x"{sim}}}'.encode()
        assert decode_generation(body, header, options, chat=False).faults == expected


@pytest.mark.parametrize(
    ("value", "inputs", "tokens"),
    [
        ('"a b"', ("a b",), 2),
        ('["a","b c"]', ("a", "b c"), 3),
        ("[1,2,3]", ("1 2 3",), 3),
        ("[[1],[2,3]]", ("1", "2 3"), 3),
    ],
)
def test_embedding_inputs(value: str, inputs: tuple[str, ...], tokens: int) -> None:
    job = decode_embeddings(f'{{"input":{value}}}'.encode(), None, OPTIONS)
    assert (job.inputs, job.prompt_tokens) == (inputs, tokens)


@pytest.mark.parametrize("value", ['""', "[]", '["a",""]', "3"])
def test_bad_embedding_inputs(value: str) -> None:
    with pytest.raises(Refused):
        decode_embeddings(f'{{"input":{value}}}'.encode(), None, OPTIONS)
