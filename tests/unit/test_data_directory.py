"""What is about to be made private is llmgw's own, or is refused before a mode is changed."""

import stat
from pathlib import Path

import pytest

from agent.join import _make_directory
from llmgw.control import identity
from llmgw.core.errors import InvalidInput
from llmgw.core.layout import AgentLayout, ServerLayout, check_own
from llmgw.demo.files import DemoFiles


def test_a_directory_that_is_everybodys_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    refused = r"^data: .* is everybody's \(mode 1777\) .* as in .*/llmgw$"
    with pytest.raises(InvalidInput, match=refused):
        identity.prepare(ServerLayout(data=tmp_path))
    with pytest.raises(InvalidInput, match=refused):
        DemoFiles(tmp_path).prepare()
    with pytest.raises(InvalidInput, match=refused):
        _make_directory(AgentLayout(data=tmp_path))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_ones_own_is_made_private_and_a_new_one_is_made(tmp_path: Path) -> None:
    own, new = tmp_path / "own", tmp_path / "a" / "new"
    own.mkdir(mode=0o755)
    for data in (own, new):
        identity.prepare(ServerLayout(data=data))
        assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_what_cannot_be_a_directory_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidInput, match=r"data: .*/file is no directory"):
        check_own(file)
    with pytest.raises(InvalidInput, match=r"data: .*/file/x cannot be looked at: Not a directory"):
        identity.prepare(ServerLayout(data=file / "x"))
    (tmp_path / "run").touch()
    with pytest.raises(InvalidInput, match=r"data: .*/run cannot be made: File exists"):
        identity.prepare(ServerLayout(data=tmp_path))
