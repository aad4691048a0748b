"""The file with the metrics store's token: what is wrong with it is said with what would do, and not what it holds."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmgw.control.history.metrics_token import check_token_file, read_token
from llmgw.core.errors import LlmgwError

NOBODY = 65534
WOULD_DO = (
    "; monitor.prometheus.token_file takes a file that each server's account may read, with the token on its first line"
)


@contextlib.contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read everything: then as an account that may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def refusal(path: Path, private: tuple[Path, ...] = ()) -> str:
    with pytest.raises(LlmgwError) as caught:
        read_token(str(path), private)
    said = caught.value.message
    assert said.startswith(f"its token file {path}: ")
    assert said.endswith(WOULD_DO)
    return said.removeprefix(f"its token file {path}: ").removesuffix(WOULD_DO)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "it cannot be read: No such file or directory"),
        (Path.mkdir, "it is no regular file"),
        (lambda path: os.mkfifo(path), "it is no regular file"),
        (Path.touch, "it is empty"),
        (lambda path: path.write_text("\n \n"), "it is empty"),
        (lambda path: path.write_text("# sesame-123456\n"), "it holds something that is no token"),
        (lambda path: path.write_text("-----BEGIN SECRET-----\nsesame\n"), "it holds something that is no token"),
        (lambda path: path.write_text("sesame"), "it holds something that is no token"),
        (lambda path: path.write_bytes(b"\0" * 10**6), "it holds something that is no token"),
    ],
)
def test_a_file_that_will_not_do_is_named_with_one_that_would(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    path = tmp_path / "token"
    make(path)
    said = refusal(path)
    assert said.startswith(why)
    assert "sesame" not in said
    assert "SECRET" not in said


def test_a_file_that_the_account_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sesame-123456\n")
    path.chmod(0)
    with somebody_else():
        said = refusal(path)
    assert said == "it cannot be read: Permission denied"


def test_a_file_of_the_server_itself_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sesame-123456\n")
    assert refusal(path, (tmp_path,)).startswith("it belongs to the server itself")
    assert read_token(str(path), ()) == "sesame-123456"


def test_a_token_s_file_is_named_in_full() -> None:
    assert check_token_file("") == check_token_file("/etc/llmgw/prometheus.token") == ""
    assert "absolute" in check_token_file("prometheus.token")
