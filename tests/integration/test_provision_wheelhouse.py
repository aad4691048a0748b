"""Engines for nodes without a package index: wheels lie on the mirror's machine, and the real uv installs from them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agent.provision.build import ready
from agent.provision.recipes import Recipe
from agent.provision.service import Provisions
from agent.weights.cache import Cache
from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from tests.support.mirrors import TOKEN, Running, running_mirror
from tests.support.waiting import until
from tests.support.weights import quick
from tests.support.wheels import make_wheel

RECIPE = Recipe(
    engine="vllm",
    package="vllm",
    program="vllm",
    disk_bytes=1 << 20,
    check="import vllm, helper; print('card of', vllm.VERSION, helper.VERSION)",
)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """What an operator put on the mirror's machine."""
    directory = tmp_path / "server" / "wheels" / "2026-11"
    make_wheel(directory, "vllm", "1.2.0", program="vllm", requires=("helper<3",))
    make_wheel(directory, "helper", "2.0")
    (directory / "notes.txt").write_text("not a wheel, and not served")
    return directory


@asynccontextmanager
async def node(tmp_path: Path, running: Running, wheels: Path) -> AsyncIterator[Provisions]:
    """An agent's installing, beside its cache of what comes from the mirror."""
    cache = Cache(tmp_path / "node" / "weights", mirror_url=running.url, token=TOKEN, policy=quick())
    provisions = Provisions(
        root=tmp_path / "node" / "engines",
        output=tmp_path / "node" / "log",
        wanted={"vllm": "1.2.0"},
        wheelhouse=f"mirror:{wheels}",
        recipes={"vllm": RECIPE},
        fetch=cache.fetch,
        retry_s=0.05,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        await nursery.start(provisions.run)
        yield provisions
        nursery.cancel_scope.cancel()


def words(provisions: Provisions) -> str:
    """What stands in the engine's place."""
    told = provisions.told("vllm")
    return "" if told is None else told.why_not


@pytest.mark.trio
async def test_an_engine_is_installed_from_wheels_on_the_mirror(tmp_path: Path, wheels: Path) -> None:
    config = MirrorConfig(policy=quick(), wheelhouse=wheels.parent)
    async with running_mirror(tmp_path / "mirror", config=config) as running:
        async with node(tmp_path, running, wheels) as provisions:
            await until(lambda: provisions.program("vllm") is not None)
        status = running.mirror.status(f"file:{wheels}")
        assert status is not None
        assert (status.state, status.files) == (SetState.READY, 2)
    found = ready(tmp_path / "node" / "engines" / "vllm" / "1.2.0")
    assert found is not None
    assert found.checked == "card of 1.2.0 2.0"
    log = (tmp_path / "node" / "log" / "engine-vllm.log").read_text()
    assert "--no-index --find-links" in log


@pytest.mark.trio
async def test_a_mirror_hands_out_wheels_from_where_its_operator_said_and_nowhere_else(
    tmp_path: Path, wheels: Path
) -> None:
    other = tmp_path / "elsewhere"
    make_wheel(other, "secret", "1.0")
    (wheels.parent / "out").symlink_to(other)
    for config in (MirrorConfig(policy=quick()), MirrorConfig(policy=quick(), wheelhouse=wheels.parent)):
        name = "with" if config.wheelhouse else "without"
        async with running_mirror(tmp_path / name, config=config) as running:
            for directory in (other, wheels.parent / "out", *([] if config.wheelhouse else [wheels])):
                status = await running.settled(f"file:{directory}")
                assert status.state is SetState.FAILED
                assert "it has no safetensors and no GGUF" in status.message
            single = await running.settled(f"file:{wheels}/helper-2.0-py3-none-any.whl")
            assert "is not weights by its name" in single.message


@pytest.mark.trio
async def test_what_is_no_wheel_inside_is_said_where_the_engine_would_stand(tmp_path: Path, wheels: Path) -> None:
    broken = wheels / "helper-2.0-py3-none-any.whl"
    whole = broken.read_bytes()
    broken.write_bytes(b"<html>sign in</html>")
    config = MirrorConfig(policy=quick(), wheelhouse=wheels.parent)
    async with (
        running_mirror(tmp_path / "mirror", config=config) as running,
        node(tmp_path, running, wheels) as provisions,
    ):
        await until(lambda: "is not a wheel inside" in words(provisions))
        assert words(provisions).startswith("the wheels cannot be had: the mirror could not fetch")
        broken.write_bytes(whole)
        await until(lambda: provisions.program("vllm") is not None)
