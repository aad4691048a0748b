"""The committed wire code is what the .proto files give."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(target: Path) -> subprocess.CompletedProcess[str]:
    """`proto/generate.py --check` on a copy of the generated code."""
    command = [sys.executable, str(ROOT / "proto/generate.py"), "--check", "--target", str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of llmgw/wire."""
    return Path(shutil.copytree(ROOT / "llmgw/wire", tmp_path / "wire", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_committed_code_is_up_to_date(copy: Path) -> None:
    done = check(copy)
    assert done.returncode == 0, done.stderr


def test_stale_code_is_named_and_repaired(copy: Path) -> None:
    stale = copy / "llmgw/v1/__init__.py"
    stale.write_text(stale.read_text().replace("mirror_url", "mirror"))
    (copy / "left_over.py").touch()
    done = check(copy)
    assert done.returncode == 1
    assert "left_over.py, llmgw/v1/__init__.py" in done.stderr
    assert "make proto" in done.stderr
    command = [sys.executable, str(ROOT / "proto/generate.py"), "--target", str(copy)]
    subprocess.run(command, check=True, timeout=60)
    assert check(copy).returncode == 0
    assert not (copy / "left_over.py").exists()
