"""Dashboard and alerts ask for what there is: every metric and label of theirs is on a server's own metrics page."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from tests.support.exposition import Family
from tests.unit.test_metrics_page import a_router, page, totals_of

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
SCRAPED = {"instance", "job"}
"""Labels that Prometheus gives every series itself."""
_METRIC = re.compile(r"\b(llmgw_\w+)\s*(\{[^}]*\})?")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
Object = dict[str, object]


def real() -> dict[str, Family]:
    return page(totals_of(a_router()), "m-ready")


def family(name: str, found: dict[str, Family]) -> Family | None:
    if name in found:
        return found[name]
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return found[base] if base in found and found[base].kind == "histogram" else None


def wrong(expression: str, found: dict[str, Family]) -> list[str]:
    """What of an expression is not there: its metrics, the labels it matches on, those it groups by."""
    trouble: list[str] = []
    known = set(SCRAPED)
    without_texts = re.sub(r'"[^"]*"', '""', expression)
    for name, matchers in _METRIC.findall(without_texts):
        metric = family(name, found)
        if metric is None:
            trouble.append(name)
            continue
        labels = metric.labels | ({"le"} if name.endswith("_bucket") else set()) | SCRAPED
        known |= labels
        trouble += [f"{name}{{{label}}}" for label in _MATCHER.findall(matchers) if label not in labels]
        if name.endswith("_total") != (metric.kind == "counter"):
            trouble.append(f"{name} is a {metric.kind}")
    for labels_ in _GROUPING.findall(without_texts):
        trouble += [f"by {label}" for label in re.findall(r"\w+", labels_) if label not in known]
    return trouble


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Object:
    return cast("Object", json.loads((FOLDER / "dashboard.json").read_text()))


def panels() -> Iterator[Object]:
    for panel in cast("list[Object]", dashboard()["panels"]):
        if panel["type"] != "row":
            yield panel


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in cast("list[dict[str, str]]", panel["targets"]):
            yield str(panel["title"]), target["expr"]


def test_what_is_not_there_would_be_noticed() -> None:
    found = real()
    assert wrong("sum by (model) (llmgw_gpu_invented)", found)
    assert wrong('max by (node) (llmgw_gpu_healthy{team="x"})', found) == ["llmgw_gpu_healthy{team}"]
    assert wrong("max by (colour) (llmgw_gpu_healthy)", found) == ["by colour"]
    assert wrong("rate(llmgw_first_token_seconds_bucket[5m])", found) == []
    assert wrong("histogram_quantile(0.5, sum by (model, le) (llmgw_first_token_seconds_count))", found) == ["by le"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_asks_for_what_there_is(where: str, expression: str) -> None:
    assert _METRIC.search(expression) or 'up{job="llmgw"}' in expression, where
    assert wrong(expression, real()) == []
    assert expression.count("(") == expression.count(")")


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in cast("list[dict[str, dict[str, str]]]", rules()):
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    documented = set(re.findall(r"^\| `(Llmgw\w+)`", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert documented == set(names)


def test_every_label_in_an_alerts_words_is_one_it_carries() -> None:
    for rule in cast("list[dict[str, dict[str, str]]]", rules()):
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", str(rule["expr"])))))
        told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert told <= kept | SCRAPED, rule["alert"]


def test_panels_are_of_the_chosen_source_models_and_nodes_and_lie_side_by_side() -> None:
    variables = {str(v["name"]): v for v in cast("dict[str, list[Object]]", dashboard()["templating"])["list"]}
    assert set(variables) == {"datasource", "model", "node"}
    for name in ("model", "node"):
        assert wrong(str(variables[name]["definition"]).replace("label_values", ""), real()) == []
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert cast("dict[str, str]", panel["datasource"])["uid"] == "${datasource}"
        assert panel["title"]
        place = cast("dict[str, int]", panel["gridPos"])
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in cast("list[Object]", dashboard()["panels"])]
    assert len(set(ids)) == len(ids)


def test_every_place_for_a_variable_names_one_there_is() -> None:
    known = {"model", "node", "datasource", "__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps([list(panels())]))) <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not here")
def test_prometheus_itself_takes_the_rules_and_they_fire_when_they_should() -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        run = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr
