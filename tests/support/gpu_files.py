"""Outputs of real machines, where the workplace has them, and a small corpus of our own."""

import os
from pathlib import Path

import pytest

from agent.command import ToolResult
from agent.discovery.smi import Smi

ROOT = Path(__file__).resolve().parents[2]
REAL = Path(os.environ.get("LLMGW_TEST_DATA") or ROOT.parent / "shared" / "data") / "gpu"
OWN = ROOT / "tests" / "corpora" / "gpu"
MIB = 1024 * 1024


def real(name: str) -> str:
    """A real machine's output; skips the test where the collection is not there."""
    if not (REAL / name).exists():
        pytest.skip(f"{REAL.name} of the workplace's real outputs is not there: {name} was not read")
    return (REAL / name).read_text()


def own(name: str) -> str:
    """A text of our own, written after the vendor's documentation."""
    return (OWN / name).read_text()


class Tool:
    """Stands in for nvidia-smi: says what belongs to the first argument, and notes what it was asked."""

    def __init__(self, answers: dict[str, str | ToolResult]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    @property
    def smi(self) -> Smi:
        """The tool as readers take it."""
        return Smi(run=self.run)

    def run(self, argv: list[str], *, timeout_s: float) -> ToolResult:
        """One call."""
        assert timeout_s > 0
        key = " ".join(argv[1:])
        self.asked.append(key)
        answer = next((a for k, a in self._answers.items() if key == k or (k and key.startswith(k))), None)
        if answer is None:
            return ToolResult(code=2, output=f"Unknown option {key}")
        return ToolResult(code=0, output=answer) if isinstance(answer, str) else answer
