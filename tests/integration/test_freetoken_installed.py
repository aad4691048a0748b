"""FreeToken is installed with its kernels by the real uv where they run, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from agent.config import AgentConfig
from agent.discovery.cuda import Toolkit
from agent.engines import known_engines
from agent.provision.meant import Machine
from agent.provision.recipes import RECIPES
from agent.provision.service import Provisions
from llmgw.core.cluster import Card
from tests.integration.test_provision import MIB, uv_is_here
from tests.support.builders import a_card
from tests.support.waiting import until
from tests.support.wheels import make_wheel

pytestmark = [pytest.mark.skipif(not uv_is_here(), reason="uv is not installed"), pytest.mark.trio]

TOOLKIT = Toolkit(path=Path("/usr/local/cuda-13.0"), major=13, minor=0)


class Bench:
    """A machine whose parts a test changes."""

    def __init__(self) -> None:
        self.cards: tuple[Card, ...] = (a_card(compute_capability="8.6", driver="580.65.06"),)
        self.toolkit: Toolkit | None = TOOLKIT
        self.looked = 0

    def machine(self) -> Machine:
        """As engines see it."""

        def toolkit(_: int) -> Toolkit | None:
            self.looked += 1
            return self.toolkit

        return Machine(
            architecture="x86_64", cards=lambda: self.cards, toolkit=toolkit, program=lambda _: "/usr/bin/g++"
        )


def provisions(tmp_path: Path, bench: Bench) -> Provisions:
    """One version, from wheels at hand; whether the stand-in computes is asked of itself."""
    make_wheel(tmp_path / "wheels", "freetoken", "0.2.1", program="ft", requires=("kernels; extra == 'accel'",))
    make_wheel(tmp_path / "wheels", "kernels", "1.0")
    recipe = replace(RECIPES["freetoken"], disk_bytes=MIB, check="import freetoken, kernels; print(freetoken.VERSION)")
    return Provisions(
        root=tmp_path / "engines",
        output=tmp_path / "log",
        wanted={"freetoken": "0.2.1"},
        wheelhouse=str(tmp_path / "wheels"),
        machine=bench.machine(),
        recipes={"freetoken": recipe},
        retry_s=0.05,
    )


async def test_its_package_comes_with_the_kernels_and_the_engine_is_there(tmp_path: Path) -> None:
    made = provisions(tmp_path, Bench())
    engine = known_engines(AgentConfig(data=str(tmp_path)), made)["freetoken"]
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        await until(lambda: made.program("freetoken") is not None)
        nursery.cancel_scope.cancel()
    assert made.program("freetoken") == tmp_path / "engines" / "freetoken" / "0.2.1" / "bin" / "ft"
    build = engine.detect()
    assert build is not None
    assert (build.version, build.usable) == ("0.2.1", True)
    assert "freetoken[accel]==0.2.1" in (tmp_path / "log" / "engine-freetoken.log").read_text()
    packages = tmp_path / "engines" / "freetoken" / "0.2.1" / "lib"
    assert list(packages.glob("python3*/site-packages/kernels-1.0.dist-info"))


async def test_nothing_is_fetched_before_what_is_missing_is_there(tmp_path: Path) -> None:
    bench = Bench()
    bench.toolkit = None
    made = provisions(tmp_path, bench)
    engine = known_engines(AgentConfig(data=str(tmp_path)), made)["freetoken"]
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        await until(lambda: bench.looked > 2)
        build = engine.detect()
        assert build is not None
        assert "install the package cuda-toolkit-13" in build.why_not
        assert not (tmp_path / "engines").exists()
        bench.toolkit = TOOLKIT
        await until(lambda: made.program("freetoken") is not None)
        nursery.cancel_scope.cancel()


async def test_nothing_is_fetched_or_said_where_its_kernels_cannot_run(tmp_path: Path) -> None:
    bench = Bench()
    bench.cards = (a_card(compute_capability="7.5", driver="580.65.06"),)
    made = provisions(tmp_path, bench)
    made.retry_s = 3600.0
    engine = known_engines(AgentConfig(data=str(tmp_path)), made)["freetoken"]
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        await trio.testing.wait_all_tasks_blocked(0.2)
        nursery.cancel_scope.cancel()
    assert engine.detect() is None
    assert not (tmp_path / "engines").exists()
