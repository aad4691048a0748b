"""A strict reader of Prometheus's text format: what a scraper might forgive is an error here."""

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_ESCAPED = re.compile(r"\\(.)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}

Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    """One metric: its samples by name and labels."""

    name: str
    doc: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        """The sample of exactly these labels; raises KeyError."""
        return self.samples[self.name + suffix, frozenset(labels.items())]

    @property
    def labels(self) -> set[str]:
        """Names of all labels but a histogram's own."""
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}


def parse(text: str) -> dict[str, Family]:
    """The page's families; raises AssertionError where it breaks the format."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    last: Family | None = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, doc = line[7:].partition(" ")
            assert _NAME.fullmatch(name), line
            assert name not in families, f"{name} comes twice"
            assert doc, line
            last = families[name] = Family(name, doc)
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            assert last is not None, line
            assert (last.name, last.kind, last.samples) == (name, "", {}), line
            assert kind in _SUFFIXES, line
            last.kind = kind
        else:
            assert last is not None, line
            _take(last, line)
    for family in families.values():
        _check(family)
    return families


def _take(family: Family, line: str) -> None:
    match = _NAME.match(line)
    assert match is not None, line
    name, rest = match.group(), line[match.end() :]
    assert name in {family.name + suffix for suffix in _SUFFIXES[family.kind]}, f"{line!r} is not of {family.name}"
    labels: list[tuple[str, str]] = []
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            pair = _PAIR.match(rest)
            assert pair is not None, line
            labels.append((pair[1], _ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], pair[2])))
            rest = rest[pair.end() :]
            assert rest[:1] in {",", "}"}, line
            rest = rest.removeprefix(",")
        rest = rest[1:]
    assert rest.startswith(" "), line
    assert len(dict(labels)) == len(labels), f"a label comes twice in {line!r}"
    key = (name, frozenset(labels))
    assert key not in family.samples, f"{line!r} comes twice"
    family.samples[key] = float(rest[1:])


def _check(family: Family) -> None:
    assert family.kind, family.name
    assert family.samples, f"{family.name} has no samples"
    if family.kind == "counter":
        assert family.name.endswith("_total"), family.name
        assert all(value >= 0 for value in family.samples.values()), family.name
    if family.kind == "histogram":
        _check_histogram(family)


def _check_histogram(family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            end = dict(labels)["le"]
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(end), value))
    for labels, buckets in series.items():
        ends, counts = [end for end, _ in buckets], [count for _, count in buckets]
        assert ends == sorted(ends), family.name
        assert ends[-1] == float("inf"), family.name
        assert counts == sorted(counts), f"{family.name} is not cumulative"
        assert counts[-1] == family.samples[f"{family.name}_count", labels]
        assert (f"{family.name}_sum", labels) in family.samples
    assert len(family.samples) == sum(len(buckets) + 2 for buckets in series.values()), family.name
