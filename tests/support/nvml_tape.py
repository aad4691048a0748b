"""NVML sessions on tape: recorded from a real library call by call, and replayed in its place under the same reader.

A tape is JSON: `about` (where it comes from) and `calls`, which hold the answers to `function|argument|…` in the order
in which they came; the last one is given again and again. An answer is a figure, a text, a list, or one of
`{"error": text}`, `{"struct": {…}}`, `{"handle": name}`. GPM's samples are opaque: their metrics are kept by card.
"""

import ctypes
import json
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

GPM_METRICS = 16
"""Places for metrics in the struct that a replay hands out."""


class TapeError(Exception):
    """Stands for pynvml.NVMLError."""


class GpmSample:
    """An opaque sample; only the card it was taken of counts."""

    device = ""


class GpmQuery:
    """Stands for pynvml.c_nvmlGpmMetricsGet_t."""

    def __init__(self) -> None:
        self.version = 0
        self.numMetrics = 0
        self.sample1: GpmSample | None = None
        self.sample2: GpmSample | None = None
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=1, value=0.0) for _ in range(GPM_METRICS)]


class TapeLibrary(ModuleType):
    """A tape in pynvml's place. `asked` counts the calls by function."""

    NVMLError = TapeError
    c_nvmlGpmMetricsGet_t = GpmQuery

    def __init__(self, tape: dict[str, Any]) -> None:
        super().__init__("tape")
        self.asked: dict[str, int] = defaultdict(int)
        self._calls: dict[str, list[Any]] = {key: list(answers) for key, answers in tape["calls"].items()}
        self._functions = {key.partition("|")[0] for key in self._calls}

    def change(self, key: str, *answers: Any) -> None:
        """From here on the call answers otherwise: a card falls, a link fails."""
        self._calls[key] = list(answers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.__dict__.get("_functions", ()):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, arguments)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.asked[name] += 1
        if name == "nvmlGpmSampleAlloc":
            return GpmSample()
        if name == "nvmlGpmSampleGet":
            self._next("|".join((name, str(arguments[0]))))
            arguments[1].device = str(arguments[0])
            return arguments[1]
        if name == "nvmlGpmMetricsGet":
            return self._fill(arguments[0])
        return _alive(self._next("|".join((name, *map(_word, arguments)))))

    def _fill(self, query: GpmQuery) -> GpmQuery:
        assert query.sample1 is not None
        assert query.sample2 is not None
        assert query.sample1.device == query.sample2.device, "two cards' samples are compared"
        metrics = self._next(f"nvmlGpmMetricsGet|{query.sample2.device}")
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn, metric.value = metrics.get(str(metric.metricId), (3, 0.0))
        return query

    def _next(self, key: str) -> Any:
        answers = self._calls.get(key)
        if not answers:
            raise TapeError(f"Not Supported ({key} is not on the tape)")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, dict) and "error" in answer:
            raise TapeError(answer["error"])
        return answer


class Recorder(ModuleType):
    """The real library, every call of which is noted."""

    def __init__(self, library: ModuleType) -> None:
        super().__init__("recorder")
        self._library = library
        self._names: dict[int, str] = {}
        self._devices: dict[int, str] = {}
        """Address of a GPM sample → card it was taken of."""
        self._calls: dict[str, list[Any]] = defaultdict(list)

    def tape(self, about: str) -> dict[str, Any]:
        """What was noted; answers that only repeat themselves at the end are noted once."""
        calls = {}
        for key, answers in self._calls.items():
            while len(answers) > 1 and answers[-1] == answers[-2]:
                answers.pop()
            calls[key] = answers
        return {"about": about, "calls": calls}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        real = getattr(self._library, name)
        if not name.startswith("nvml") or isinstance(real, type) or not callable(real):
            return real
        return lambda *arguments: self._record(name, real, arguments)

    def _record(self, name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
        key = self._key(name, arguments)
        try:
            answer = real(*arguments)
        except self._library.NVMLError as error:
            self._calls[key].append({"error": str(error)})
            raise
        if name == "nvmlDeviceGetHandleByIndex":
            self._names[_address(answer)] = f"g{arguments[0]}"
        elif name == "nvmlDeviceGetMigDeviceHandleByIndex":
            self._names[_address(answer)] = f"{self._names[_address(arguments[0])]}/m{arguments[1]}"
        elif name == "nvmlGpmSampleGet":
            self._devices[_address(arguments[1])] = self._names[_address(arguments[0])]
        self._calls[key].append(self._noted(name, answer, arguments))
        return answer

    def _key(self, name: str, arguments: tuple[Any, ...]) -> str:
        if name == "nvmlGpmSampleGet":
            return f"{name}|{self._names[_address(arguments[0])]}"
        if name == "nvmlGpmMetricsGet":
            return f"{name}|{self._devices[_address(arguments[0].sample2)]}"
        if name in ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree"):
            return name
        return "|".join((name, *(_word(self._plain(argument)) for argument in arguments)))

    def _noted(self, name: str, answer: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "nvmlGpmMetricsGet":
            query = arguments[0]
            return {str(m.metricId): [m.nvmlReturn, m.value] for m in query.metrics[: query.numMetrics]}
        return 0 if name.startswith("nvmlGpmSample") else self._plain(answer)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple | ctypes.Array):
            return [self._plain(part) for part in value]
        if isinstance(value, ctypes.Structure | ctypes.Union):
            names = [field[0] for field in value._fields_]
            return {"struct": {name: self._plain(getattr(value, name)) for name in names}}
        if isinstance(value, SimpleNamespace):
            return {"struct": {name: self._plain(part) for name, part in vars(value).items()}}
        address = _address(value)
        return {"handle": self._names.setdefault(address, f"h{len(self._names)}")}


def load(path: Path) -> dict[str, Any]:
    """A tape."""
    tape: dict[str, Any] = json.loads(path.read_text())
    return tape


def save(tape: dict[str, Any], path: Path) -> None:
    """One call a line, so that two tapes can be compared."""
    lines = [f"    {json.dumps(key)}: {json.dumps(answers)}" for key, answers in sorted(tape["calls"].items())]
    path.write_text(f'{{\n  "about": {json.dumps(tape["about"])},\n  "calls": {{\n' + ",\n".join(lines) + "\n  }\n}\n")


def _alive(answer: Any) -> Any:
    """An answer as the library would have given it."""
    if isinstance(answer, list):
        return [_alive(part) for part in answer]
    if isinstance(answer, dict) and "struct" in answer:
        return SimpleNamespace(**{name: _alive(part) for name, part in answer["struct"].items()})
    if isinstance(answer, dict) and "handle" in answer:
        return answer["handle"]
    return answer


def _word(argument: Any) -> str:
    """An argument in a call's key."""
    if isinstance(argument, dict) and "handle" in argument:
        return str(argument["handle"])
    if isinstance(argument, list | tuple):
        return ",".join(map(_word, argument))
    return str(argument)


def _address(handle: Any) -> int:
    try:
        return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
    except ctypes.ArgumentError:  # a tape in the library's place: its handles are names
        return hash(handle)
