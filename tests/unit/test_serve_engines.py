"""Which engine serves a source, and what is refused before anything is fetched."""

import pytest

from llmgw.api.types import ServeRequest
from llmgw.control.serve import model_for
from llmgw.core.errors import InvalidInput

REPOSITORY = "hf:Qwen/Qwen2.5-7B-Instruct@0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("source", "gpu_class", "engine"),
    [
        ("sim:", None, "sim"),
        ("sim:", "h100-80g", "sim"),
        (f"{REPOSITORY}/q4.gguf", None, "llamacpp"),
        (f"{REPOSITORY}/q4.gguf", "h100-80g", "llamacpp"),
        (REPOSITORY, "h100-80g", "vllm"),
    ],
)
def test_the_engine_follows_the_source_and_the_cards(source: str, gpu_class: str | None, engine: str) -> None:
    model = model_for(ServeRequest(source=source, gpu_class=gpu_class))
    assert [profile.engine for profile in model.profiles] == [engine]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_on_cards_are_told_which_and_get_no_single_file(engine: str) -> None:
    with pytest.raises(InvalidInput, match=f"{engine} runs on cards: say which") as refused:
        model_for(ServeRequest(source=REPOSITORY, engine=engine))
    assert refused.value.field == "profiles[0].gpu_class"
    for source in (f"{REPOSITORY}/q4.gguf", f"https://host/Q4.GGUF?sig=1#sha256={'a' * 64}"):
        with pytest.raises(InvalidInput, match="names a GGUF file: leave the file out"):
            model_for(ServeRequest(source=source, engine=engine, gpu_class="h100-80g"))


def test_safetensors_on_the_cpu_are_refused_with_both_ways_out() -> None:
    with pytest.raises(InvalidInput, match=r"FILE\.gguf, or run it on cards with vllm or sglang"):
        model_for(ServeRequest(source=REPOSITORY))
