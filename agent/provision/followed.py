"""`python -m agent.provision.followed`: whether the engines whose flags llmgw knows have newer releases.

Asks whichever package index uv is configured for, and takes what uv would install here: what was withdrawn, is not
final, or is not made for this machine's Python is no newer release. Exit 0: none is behind. Exit 1: one is. Exit 2: the
index could not be asked for one of them, which is not to be read as good news.
"""

import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from agent.provision.recipes import RECIPES
from agent.provision.uv import BuildFailed, environment, find_uv
from llmgw.core.engine_builds import FOLLOWED as VERSIONS

FOLLOWED: Mapping[str, str] = {engine: version for engine, version in VERSIONS.items() if engine in RECIPES}
"""Of the versions that are followed, those an index is asked of."""
BUILT_IN = "xllamacpp"
"""Package that brings the llama.cpp that is part of llmgw; followed as it is installed."""
ASK_TIMEOUT_S = 120.0


def newest(package: str, cache: Path) -> str:
    """The version uv would install now; raises BuildFailed. Blocking."""
    ask = [find_uv(), "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate"]
    try:
        done = subprocess.run(
            [*ask, "--python", sys.executable, "-"],
            input=f"{package}\n",
            env=environment(cache),
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"the index did not answer within {ASK_TIMEOUT_S:g} s") from error
    match = re.search(rf"^{re.escape(package)}==(\S+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or match is None:
        said = " / ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise BuildFailed(f"uv says: {said or f'exit code {done.returncode}'}")
    return match[1]


def is_newer(found: str, than: str) -> bool:
    """Whether a final version comes after another; both are release numbers, with `.postN` at most."""
    return _order(found) > _order(than)


def _order(version: str) -> tuple[tuple[int, ...], int]:
    release, _, post = version.partition(".post")
    numbers = [int(number) for number in re.findall("[0-9]+", release.partition("+")[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), int(post) if post.isdecimal() else -1


def main(followed: Mapping[str, str] | None = None) -> int:
    """Print a sentence for each; the exit code."""
    wanted = dict(followed) if followed is not None else {**FOLLOWED, BUILT_IN: importlib.metadata.version(BUILT_IN)}
    behind = unknown = 0
    with tempfile.TemporaryDirectory(prefix="llmgw-followed-") as cache:
        for engine, version in wanted.items():
            package = RECIPES[engine].package if engine in RECIPES else engine
            try:
                found = newest(package, Path(cache))
            except BuildFailed as error:
                unknown += 1
                print(f"{package} {version} is followed, and nobody knows of a newer one: {error.message}")
                continue
            if is_newer(found, version):
                behind += 1
                print(
                    f"{package} {version} is followed, and {found} is out: compare its flags (llmgw ctl engine-check)"
                )
            else:
                print(f"{package} {version} is followed, and nothing newer is out")
    return 1 if behind else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
