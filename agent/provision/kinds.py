"""The kinds of engines that are installed: Python packages by uv, and llama.cpp from its release archives.

Calls on one, in order: `meant` whenever it may be time to build; `directory` to see what is there; `install` once for a
build, again after one that failed. It leaves a whole directory with its marker, or none that has one.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from agent.provision import archive
from agent.provision.archive import ArchiveOrder, Origin
from agent.provision.build import Order, Ready, build, directory_name
from agent.provision.meant import Machine, standing
from agent.provision.progress import Progress
from agent.provision.recipes import Recipe
from agent.provision.release import MeantElsewhere
from agent.provision.uv import BuildFailed, Runner
from llmgw.core.errors import LlmgwError
from llmgw.transfer.download import Policy

Wheels = Callable[[Progress], Awaitable[str]]
"""Where wheels are, fetched first if need be; empty for the index."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One build."""

    version: str
    as_of: str
    root: Path
    """Directory of everything the agent installs."""
    runner: Runner
    progress: Progress
    said: Callable[[str], None]
    """Told what is done now."""


class Kind(Protocol):
    """How one engine is installed."""

    engine: str
    program: str
    """What is in the directory's `bin` then."""
    needs_card: bool
    """Whether a machine without cards is not meant for it."""

    def directory(self, version: str, as_of: str) -> str:
        """What an installation of that version is called."""
        ...

    def meant(self) -> bool:
        """Whether this machine is meant for it and lacks nothing. Blocking."""
        ...

    async def install(self, job: Job) -> Ready:
        """Install it; raises BuildFailed, MeantElsewhere, and OSError for a disk that fails."""
        ...


class PackagedEngine:
    """An engine that is a Python package."""

    needs_card = True

    def __init__(self, recipe: Recipe, *, machine: Machine, wheels: Wheels) -> None:
        self._recipe = recipe
        self._machine = machine
        self._wheels = wheels
        self.engine = recipe.engine
        self.program = recipe.program

    def directory(self, version: str, as_of: str) -> str:
        """By version, and by the day of the index where one was named."""
        return directory_name(version, as_of)

    def meant(self) -> bool:
        """Its adapter says what the machine lacks."""
        if self._recipe.requires is None:
            return True
        found = standing(self._recipe.requires, self._machine)
        return not found.elsewhere and not found.lacks

    async def install(self, job: Job) -> Ready:
        """Wheels from the mirror first, where they are there, then uv."""
        try:
            wheelhouse = await self._wheels(job.progress)
        except LlmgwError as error:
            raise BuildFailed(f"the wheels cannot be had: {error.message}") from error
        order = Order(
            recipe=self._recipe,
            version=job.version,
            root=job.root / self.engine,
            cache=job.root / "uv-cache",
            as_of=job.as_of,
            wheelhouse=wheelhouse,
        )
        return await _in_thread(order, job.runner)


class ReleasedEngine:
    """llama.cpp."""

    engine = archive.ENGINE
    program = archive.PROGRAM
    needs_card = False

    def __init__(
        self, *, origins: Mapping[str, Origin], machine: Machine, policy: Policy | None = None, disk_bytes: int
    ) -> None:
        """`origins` are by version; what every other version comes from is under the empty one."""
        self._origins = origins
        self._machine = machine
        self._policy = policy or Policy()
        self._disk_bytes = disk_bytes

    def directory(self, version: str, as_of: str) -> str:
        """By version, and by the variant where one was named."""
        return archive.directory_of(version, self._origin(version).variant)

    def meant(self) -> bool:
        """Which machines a release is for stands in its listing."""
        return True

    async def install(self, job: Job) -> Ready:
        """The archive that suits this machine's cards as they are now."""
        order = ArchiveOrder(
            version=job.version,
            root=job.root / self.engine,
            origin=self._origin(job.version),
            architecture=self._machine.architecture,
            cards=tuple(self._machine.cards() or ()),
            disk_bytes=self._disk_bytes,
            report=job.progress.report,
            said=job.said,
            policy=self._policy,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_when_cancelled, job.runner)
            try:
                outcome: Ready | Exception = await archive.install(order, job.runner)
            except (BuildFailed, MeantElsewhere, OSError) as error:
                outcome = error  # raised below: a nursery would wrap it
            nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()
        if isinstance(outcome, Ready):
            return outcome
        raise outcome

    def _origin(self, version: str) -> Origin:
        return self._origins.get(version) or self._origins.get("") or Origin()


async def _stop_when_cancelled(runner: Runner) -> None:
    try:
        await trio.sleep_forever()
    finally:
        runner.stop()


async def _in_thread(order: Order, runner: Runner) -> Ready:
    """The build in a thread; a cancellation ends it, and what it started, first."""
    outcome: Ready | BuildFailed | OSError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_when_cancelled, runner)
        try:
            work = partial(build, order, runner)
            outcome = await trio.to_thread.run_sync(work, limiter=trio.CapacityLimiter(1))
        except (BuildFailed, OSError) as error:
            outcome = error  # raised below: a nursery would wrap it
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()
    if isinstance(outcome, Ready):
        return outcome
    raise outcome
