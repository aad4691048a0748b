"""One engine's environment, built from nothing: room → uv venv → pinned install → program → check on a card → marker.

What is there without its marker was interrupted and is built anew; what uv has fetched is kept and not fetched again.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from agent.provision.recipes import Recipe
from agent.provision.uv import BuildFailed, Runner, ToolFailed, environment, find_uv
from llmgw.core.units import size

MARKER = "llmgw-ready.json"
ASK_TIMEOUT_S = 300.0
CHECK_TIMEOUT_S = 300.0
FIRST_DAY = date(2015, 1, 1)
"""No release of an engine is older."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker says of a whole environment."""

    engine: str
    version: str
    as_of: str = ""
    """Day whose index was asked; empty is the day it was built."""
    built_at: str
    checked: str
    """What the check on a card said."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be built, where and from what."""

    recipe: Recipe
    version: str
    root: Path
    """Directory of all environments of the engine."""
    cache: Path
    """What uv keeps between builds."""
    as_of: str = ""
    """Day whose index is asked; empty finds out the day after the release."""
    wheelhouse: str = ""
    """Directory or address of wheels to install from instead of the index."""

    @property
    def target(self) -> Path:
        """The environment."""
        return self.root / directory_name(self.version, self.as_of)


def directory_name(version: str, as_of: str) -> str:
    """What an environment is called: one that is of a day the operator named is another than one of the release's."""
    return f"{version}-of-{as_of}" if as_of else version


def ready(target: Path) -> Ready | None:
    """What is in an environment, if it is whole."""
    try:
        return msgspec.json.decode((target / MARKER).read_bytes(), type=Ready)
    except (OSError, msgspec.DecodeError):
        return None


def build(order: Order, runner: Runner) -> Ready:
    """Build the environment; raises BuildFailed, and OSError for a disk that fails. Blocking."""
    recipe, target = order.recipe, order.target
    order.root.mkdir(parents=True, exist_ok=True)
    check_room(recipe.engine, order.version, order.root, recipe.disk_bytes)
    uv, env = find_uv(), environment(order.cache)
    requirement = recipe.requirement(order.version)
    source = ["--no-index", "--find-links", order.wheelhouse] if order.wheelhouse else []
    as_of = order.as_of or ("" if order.wheelhouse else _day_after_release(order, uv, env, requirement, runner))
    shutil.rmtree(target, ignore_errors=True)
    made = [uv, "venv", "--no-project", "--python", sys.executable, str(target)]
    runner.run(made, env=env, what="making the environment", timeout_s=ASK_TIMEOUT_S)
    python = target / "bin" / "python"
    dated = ["--exclude-newer", as_of] if as_of else []
    install = [uv, "pip", "install", "--python", str(python), *source, *dated, requirement, *_beside(order)]
    try:
        runner.run(install, env=env, what=f"installing {requirement}")
    except BuildFailed as error:
        # uv's own words for a full disk are about a file in its cache.
        if shutil.disk_usage(order.root).free < recipe.disk_bytes // 100:
            words = _room_words(recipe.engine, order.version, order.root, recipe.disk_bytes)
            raise BuildFailed(f"the disk is full: {words}") from error
        raise
    if not (target / "bin" / recipe.program).is_file():
        raise BuildFailed(f"{requirement} is installed and brought no program called {recipe.program}")
    check = [str(python), "-c", recipe.check]
    said = runner.run(check, env=env, what="it is installed, and its check on a card", timeout_s=CHECK_TIMEOUT_S)
    found = Ready(
        engine=recipe.engine,
        version=order.version,
        as_of=as_of,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        checked=said[-1] if said else "",
    )
    write_marker(target, found)
    return found


def write_marker(target: Path, found: Ready) -> None:
    """Say that what is in a directory is whole; the last thing that is done to it. Raises OSError."""
    part = target / f"{MARKER}.part"
    part.write_bytes(msgspec.json.encode(found))
    part.rename(target / MARKER)


def _beside(order: Order) -> list[str]:
    """What is installed with the engine; of a wheelhouse only what it has, for a site may well do without."""
    if not order.wheelhouse:
        return list(order.recipe.beside)
    here = {path.name.partition("-")[0] for path in Path(order.wheelhouse).glob("*.whl")}
    return [needed for needed in order.recipe.beside if re.split(r"[^A-Za-z0-9_.]", needed)[0] in here]


def check_room(engine: str, version: str, root: Path, needed: int) -> None:
    """Raise BuildFailed unless so many bytes are free where an engine goes."""
    if shutil.disk_usage(root).free < needed:
        raise BuildFailed(_room_words(engine, version, root, needed))


def _room_words(engine: str, version: str, root: Path, needed: int) -> str:
    free = shutil.disk_usage(root).free
    return (
        f"{engine} {version} needs {size(needed)} free in {root}, and "
        f"{size(free)} are: make room or name a larger disk as data in agent.yaml"
    )


def _day_after_release(order: Order, uv: str, env: dict[str, str], requirement: str, runner: Runner) -> str:
    """The day after the one on which the index got this version; empty where the index does not tell days.

    uv asks whichever index it is configured for, as it stood at the end of a day; the first day on which the version is
    there is found by halves.
    """
    wanted = order.root / "asked.txt"
    wanted.write_text(f"{requirement}\n", encoding="utf-8")
    ask = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--python", sys.executable, str(wanted)]

    def there_on(day: date) -> bool:
        try:
            dated = [*ask, "--exclude-newer", day.isoformat()]
            runner.run(dated, env=env, what="asking the index", timeout_s=ASK_TIMEOUT_S)
        except ToolFailed:
            return False
        return True

    # Whoever cannot be asked, or has no such version, says so here in uv's own words.
    runner.run(ask, env=env, what=f"asking the index for {requirement}", timeout_s=ASK_TIMEOUT_S)
    low, high = FIRST_DAY, datetime.now(UTC).date() + timedelta(days=1)
    if not there_on(high):
        return ""
    while (high - low).days > 1:
        middle = low + (high - low) // 2
        low, high = (low, middle) if there_on(middle) else (middle, high)
    return (high + timedelta(days=1)).isoformat()
