"""Engines are installed by the real uv, from wheels at hand and from the index: pinned, checked, and not half."""

import itertools
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.provision import uv
from agent.provision.build import MARKER, Order, build, ready
from agent.provision.recipes import Recipe
from agent.provision.service import Provisions
from agent.provision.uv import BuildFailed, Runner, find_uv
from llmgw.core.processes import start_time
from tests.support.waiting import until
from tests.support.wheels import make_wheel

GOOD_CHECK = "import vllm; print('card of version', vllm.VERSION)"
MIB = 1 << 20


def uv_is_here() -> bool:
    """Whether uv was installed beside the tests."""
    try:
        return bool(find_uv())
    except BuildFailed:
        return False


pytestmark = pytest.mark.skipif(not uv_is_here(), reason="uv is not installed")


def recipe(*, disk_bytes: int = MIB, check: str = GOOD_CHECK, program: str = "vllm", package: str = "vllm") -> Recipe:
    """A stand-in for vLLM that takes a moment to install."""
    return Recipe(engine="vllm", package=package, program=program, disk_bytes=disk_bytes, check=check)


def order(tmp_path: Path, made: Recipe, *, version: str = "1.2.0", as_of: str = "") -> Order:
    """That version from the wheels beside it."""
    return Order(
        recipe=made,
        version=version,
        root=tmp_path / "engines" / "vllm",
        cache=tmp_path / "cache",
        as_of=as_of,
        wheelhouse=str(tmp_path / "wheels"),
    )


def run(asked: Order, tmp_path: Path) -> list[str]:
    """Build it; what was said meanwhile."""
    said: list[str] = []
    build(asked, Runner(tmp_path / "build.log", said.append))
    return said


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Two versions, and what the older one needs in two versions."""
    directory = tmp_path / "wheels"
    make_wheel(directory, "vllm", "1.2.0", program="vllm", requires=("helper<3",))
    make_wheel(directory, "vllm", "1.3.0", program="vllm")
    make_wheel(directory, "helper", "2.0")
    make_wheel(directory, "helper", "3.0")
    return directory


def test_an_environment_holds_the_version_asked_for_and_was_checked(tmp_path: Path, wheels: Path) -> None:
    asked = order(tmp_path, recipe())
    run(asked, tmp_path)
    found = ready(asked.target)
    assert found is not None
    assert (found.version, found.checked) == ("1.2.0", "card of version 1.2.0")
    installed = {path.name for path in asked.target.glob("lib/python3*/site-packages/*.dist-info")}
    assert {"vllm-1.2.0.dist-info", "helper-2.0.dist-info"} <= installed
    assert (asked.target / "bin" / "vllm").is_file()
    assert "pip install" in (tmp_path / "build.log").read_text()


def test_two_versions_stand_side_by_side(tmp_path: Path, wheels: Path) -> None:
    for version in ("1.2.0", "1.3.0"):
        run(order(tmp_path, recipe(), version=version), tmp_path)
    assert [ready(tmp_path / "engines" / "vllm" / v) is not None for v in ("1.2.0", "1.3.0")] == [True, True]


@pytest.mark.parametrize(
    ("made", "version", "words"),
    [
        (recipe(), "9.9", r"installing vllm==9\.9 failed: .*9\.9"),
        (recipe(check="raise SystemExit('no card')"), "1.2.0", "its check on a card failed: no card"),
        (recipe(program="other"), "1.2.0", "brought no program called other"),
        (recipe(disk_bytes=1 << 60), "1.2.0", r"needs .* free in .*, and .* are: make room"),
    ],
)
def test_what_fails_is_said_and_nothing_half_is_taken_for_whole(
    tmp_path: Path, wheels: Path, made: Recipe, version: str, words: str
) -> None:
    asked = order(tmp_path, made, version=version)
    with pytest.raises(BuildFailed, match=words):
        run(asked, tmp_path)
    assert ready(asked.target) is None
    provisions = Provisions(
        root=tmp_path / "engines", output=tmp_path, wanted={"vllm": version}, recipes={"vllm": made}
    )
    assert provisions.program("vllm") is None


def test_what_was_interrupted_is_built_anew(tmp_path: Path, wheels: Path) -> None:
    asked = order(tmp_path, recipe())
    run(asked, tmp_path)
    (asked.target / MARKER).unlink()
    (asked.target / "bin" / "vllm").write_text("torn")
    run(asked, tmp_path)
    assert ready(asked.target) is not None
    assert (asked.target / "bin" / "vllm").read_text() != "torn"


def test_a_damaged_wheel_fails_and_the_next_try_with_a_whole_one_is_well(tmp_path: Path, wheels: Path) -> None:
    (wheel,) = wheels.glob("vllm-1.2.0-*")
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    asked = order(tmp_path, recipe())
    with pytest.raises(BuildFailed, match=r"installing vllm==1\.2\.0 failed"):
        run(asked, tmp_path)
    wheel.write_bytes(whole)
    run(asked, tmp_path)
    assert ready(asked.target) is not None


def test_a_build_that_is_stopped_leaves_nothing_running(tmp_path: Path, wheels: Path) -> None:
    pid_file = tmp_path / "pid"
    endless = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    asked = order(tmp_path, recipe(check=endless))
    runner = Runner(tmp_path / "build.log", lambda _: None)
    failed: list[str] = []

    def work() -> None:
        try:
            build(asked, runner)
        except BuildFailed as error:
            failed.append(error.message)

    thread = threading.Thread(target=work)
    thread.start()
    while not (pid_file.exists() and pid_file.read_text()):
        thread.join(0.02)
    runner.stop()
    thread.join()
    assert failed == ["it is installed, and its check on a card was stopped"]
    assert start_time(int(pid_file.read_text())) is None
    assert ready(asked.target) is None


@pytest.mark.trio
async def test_the_agent_installs_what_its_file_names_and_says_how_far_it_is(tmp_path: Path, wheels: Path) -> None:
    gate = tmp_path / "gate"
    check = (
        "import os, sys, time",
        "print('looking', flush=True)",
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)",
        f"if open({str(gate)!r}).read() == 'bad': sys.exit('driver too old')",
    )
    made = recipe(check="\n".join(check))
    changes: list[str] = []
    provisions = Provisions(
        root=tmp_path / "engines",
        output=tmp_path / "log",
        wanted={"vllm": "1.2.0", "sglang": ""},
        wheelhouse=str(wheels),
        recipes={"vllm": made},
        retry_s=0.05,
        on_change=lambda: changes.append(words()),
    )
    engine = known_engines(AgentConfig(data=str(tmp_path)), provisions)["vllm"]

    def words() -> str:
        build = provisions.told("vllm")
        return "" if build is None else build.why_not

    assert words() == "to be installed"
    async with trio.open_nursery() as nursery:
        await nursery.start(provisions.run)
        await until(lambda: words().endswith(": looking"))
        assert words().startswith("being installed for ")
        detected = engine.detect()
        assert detected is not None
        assert (detected.version, detected.usable) == ("1.2.0", False)
        gate.write_text("bad")
        await until(lambda: any("driver too old" in change for change in changes))
        assert any(str(tmp_path / "log" / "engine-vllm.log") in change for change in changes)
        gate.write_text("good")
        await until(lambda: provisions.program("vllm") is not None)
        nursery.cancel_scope.cancel()
    assert words() == ""
    detected = engine.detect()
    assert detected is not None
    assert (detected.version, detected.usable) == ("1.2.0", True)
    # The next agent finds it as it is.
    again = Provisions(root=tmp_path / "engines", output=tmp_path, wanted={"vllm": "1.2.0"}, recipes={"vllm": made})
    assert again.program("vllm") == tmp_path / "engines" / "vllm" / "1.2.0" / "bin" / "vllm"


@pytest.mark.trio
async def test_an_agent_that_ends_takes_its_build_along(tmp_path: Path, wheels: Path) -> None:
    pid_file = tmp_path / "pid"
    endless = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    provisions = Provisions(
        root=tmp_path / "engines",
        output=tmp_path / "log",
        wanted={"vllm": "1.2.0"},
        wheelhouse=str(wheels),
        recipes={"vllm": recipe(check=endless)},
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(provisions.run)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        nursery.cancel_scope.cancel()
    assert start_time(int(pid_file.read_text())) is None


@pytest.mark.trio
async def test_a_machine_without_cards_is_not_meant_for_them(tmp_path: Path, wheels: Path) -> None:
    provisions = Provisions(
        root=tmp_path / "engines",
        output=tmp_path,
        wanted={"vllm": "1.2.0"},
        wheelhouse=str(wheels),
        recipes={"vllm": recipe()},
        has_cards=lambda: False,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(provisions.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert provisions.told("vllm") is None
    assert not (tmp_path / "engines").exists()


def test_from_the_index_a_version_is_made_of_what_there_was_a_day_after_its_release(tmp_path: Path) -> None:
    made = Recipe(engine="vllm", package="pytest-timeout", program="python", disk_bytes=MIB, check="print('well')")
    asked = Order(recipe=made, version="2.1.0", root=tmp_path / "engines", cache=tmp_path / "cache")
    runner = Runner(tmp_path / "build.log", lambda _: None)
    try:
        runner.run([find_uv(), "pip", "compile", "--no-deps", "-"], env={"HOME": "/"}, what="asking", timeout_s=60)
    except BuildFailed as error:
        pytest.skip(f"there is no index here: {error.message}")
    build(asked, runner)
    found = ready(asked.target)
    assert found is not None
    if not found.as_of:
        pytest.skip("this index does not tell when a version was published")
    assert found.as_of == "2022-01-19"
    installed = {path.name for path in asked.target.glob("lib/python3*/site-packages/pytest-*.dist-info")}
    assert installed == {"pytest-6.2.5.dist-info"}


def test_a_tool_that_hangs_or_is_killed_is_said(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "log", lambda _: None)
    with pytest.raises(BuildFailed, match=r"waiting did not end within 0\.3 s"):
        runner.run(["sleep", "60"], env={"PATH": "/usr/bin:/bin"}, what="waiting", timeout_s=0.3)
    with pytest.raises(BuildFailed, match=f"dying failed: exit code -{int(signal.SIGKILL)}"):
        runner.run(["sh", "-c", "kill -9 $$"], env={"PATH": "/usr/bin:/bin"}, what="dying", timeout_s=60)
    with pytest.raises(BuildFailed, match="cannot be started"):
        runner.run(["/nowhere/tool"], env={}, what="starting", timeout_s=1)


@pytest.mark.parametrize("moves", [True, False])
def test_a_tool_that_says_nothing_is_ended_only_when_it_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    written = itertools.count(1, 1 if moves else 0)
    monkeypatch.setattr(uv, "STALL_S", 0.01)
    monkeypatch.setattr(uv, "written_bytes", lambda _pid: next(written))
    runner = Runner(tmp_path / "log", lambda _: None)
    argv = ["sh", "-c", "sleep 0.7; echo here" if moves else "sleep 60"]
    if moves:
        assert runner.run(argv, env={"PATH": "/usr/bin:/bin"}, what="fetching") == ["here"]
        return
    with pytest.raises(BuildFailed, match=r"fetching neither said nor wrote anything for 0\.01 s"):
        runner.run(argv, env={"PATH": "/usr/bin:/bin"}, what="fetching")


def test_an_installation_may_take_as_long_as_it_moves(tmp_path: Path, wheels: Path) -> None:
    patience: dict[str, float | None] = {}

    class Heard(Runner):
        """Remembers how long each tool may take."""

        def run(
            self, argv: Sequence[str], *, env: Mapping[str, str], what: str, timeout_s: float | None = None
        ) -> list[str]:
            patience[what] = timeout_s
            return super().run(argv, env=env, what=what, timeout_s=timeout_s)

    build(order(tmp_path, recipe()), Heard(tmp_path / "build.log", lambda _: None))
    assert [what for what, timeout_s in patience.items() if timeout_s is None] == ["installing vllm==1.2.0"]


def test_a_stop_in_the_moment_in_which_a_tool_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tmp_path / "log", lambda _: None)

    class Stopping(subprocess.Popen[str]):
        """Nobody knows of it yet when the stop comes."""

        def _execute_child(self, *args: object) -> None:
            super()._execute_child(*args)  # type: ignore[misc]
            runner.stop()

    monkeypatch.setattr(subprocess, "Popen", Stopping)
    with pytest.raises(BuildFailed, match="waiting was stopped"):
        runner.run(["sh", "-c", "sleep 3; echo 'went on'"], env={"PATH": "/usr/bin:/bin"}, what="waiting", timeout_s=60)
    assert (tmp_path / "log").read_text().splitlines()[1:] == []


def test_what_a_tool_leaves_behind_does_not_hold_up_the_agent(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "log", lambda _: None)
    argv = ["sh", "-c", "(sleep 3; echo 'went on') & exit 0"]
    with pytest.raises(BuildFailed, match=r"leaving did not end within 0\.3 s"):
        runner.run(argv, env={"PATH": "/usr/bin:/bin"}, what="leaving", timeout_s=0.3)
    assert (tmp_path / "log").read_text().splitlines()[1:] == []


def test_until_a_newer_version_is_whole_the_one_before_starts_engines(tmp_path: Path, wheels: Path) -> None:
    run(order(tmp_path, recipe()), tmp_path)

    def named(version: str) -> Provisions:
        return Provisions(
            root=tmp_path / "engines", output=tmp_path, wanted={"vllm": version}, recipes={"vllm": recipe()}
        )

    assert named("1.3.0").program("vllm") == tmp_path / "engines" / "vllm" / "1.2.0" / "bin" / "vllm"
    assert named("1.3.0").told("vllm") is None
    run(order(tmp_path, recipe(), version="1.3.0"), tmp_path)
    assert named("1.3.0").program("vllm") == tmp_path / "engines" / "vllm" / "1.3.0" / "bin" / "vllm"
    dated = named("1.3.0@2026-01-02")
    assert dated.program("vllm") == tmp_path / "engines" / "vllm" / "1.3.0" / "bin" / "vllm"
    assert not (tmp_path / "engines" / "vllm" / "1.3.0-of-2026-01-02").exists()


@pytest.mark.parametrize("there", [True, False])
def test_what_goes_beside_an_engine_is_installed_where_the_wheels_have_it(
    tmp_path: Path, wheels: Path, there: bool
) -> None:
    if there:
        make_wheel(wheels, "ray", "2.55.0", program="ray")
    made = Recipe(
        engine="vllm", package="vllm", program="vllm", disk_bytes=MIB, check=GOOD_CHECK, beside=("ray>=2.52",)
    )
    asked = order(tmp_path, made)
    run(asked, tmp_path)
    assert ready(asked.target) is not None
    assert (asked.target / "bin" / "ray").is_file() == there
