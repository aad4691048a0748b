"""Estimates beside published figures: every one within its bound, and a figure that is off is named."""

import json
from pathlib import Path

import pytest

from tests.bench.estimates import DATA, load, main, rows, table

PUBLISHED = DATA / "models.json"
SMALL: dict[str, object] = {
    "name": "small",
    "config": {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "published": [
        {"what": "weights, sum of tensor bytes", "value": 269_030_016, "unit": "B", "context": None, "dtype": "bf16"},
        {"what": "GGUF file", "value": 144.8, "unit": "MB", "context": None, "dtype": "Q8_0"},
        {"what": "KV cache, 4 slots of 2048", "value": 180.0, "unit": "MiB", "context": 8192, "dtype": "f16"},
        {"what": "parameters, active", "value": 0.1, "unit": "billion", "context": None, "dtype": None},
    ],
}


def test_every_published_figure_is_met() -> None:
    if not PUBLISHED.exists():
        pytest.skip("the published model sizes are not here; LLMGW_TEST_DATA names the directory of models.json")
    found = rows(load(PUBLISHED))
    assert [row for row in found if row.compared and not row.within] == []
    compared = {row.model for row in found if row.compared}
    assert compared == {row.model for row in found}, "no model without a figure"
    assert sum(row.compared for row in found) >= 0.9 * len(found)


def test_a_small_models_figures_are_met_and_stand_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps([SMALL]))
    assert main(["--data", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "| small | KV cache, 4 slots of 2048 | 189 MB | 189 MB | +0.00% |" in shown
    assert "- small, parameters, active: no figure of memory" in shown


def test_a_figure_beyond_its_bound_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"what": "KV cache", "value": 200.0, "unit": "MiB", "context": 8192, "dtype": "f16"}
    found = rows([{**SMALL, "published": [row]}])
    assert [round(one.error, 2) for one in found] == [-0.1]
    assert "-10.00% **beyond the bound**" in table(found)
    path = tmp_path / "models.json"
    path.write_text(json.dumps([{**SMALL, "published": [row]}]))
    assert main(["--data", str(path)]) == 1
    assert main(["--data", str(tmp_path / "absent.json")]) == 2
    assert "absent.json: No such file" in capsys.readouterr().err
