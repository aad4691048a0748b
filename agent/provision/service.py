"""Installs the engines that are asked for, one after the other, and says of each how far it is.

agent.yaml asks, and the cluster may ask for others while the agent runs. A machine that is not meant for an engine says
nothing; one that is meant for it and cannot be served says what is missing, and tries again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from agent.config import AgentConfig
from agent.provision.archive import DISK_BYTES, Origin
from agent.provision.build import Ready, ready
from agent.provision.kinds import Job, Kind, PackagedEngine, ReleasedEngine
from agent.provision.meant import Machine
from agent.provision.progress import Progress
from agent.provision.recipes import RECIPES, Recipe
from agent.provision.release import MeantElsewhere
from agent.provision.uv import BuildFailed, Runner
from agent.provision.wheels import Fetch, wheels
from agent.provision.wishes import load_builds, merged, save_builds, sound
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_builds import RELEASED
from llmgw.core.layout import AgentLayout
from llmgw.core.text import clip, safe

log = logging.getLogger("agent.provision")

RETRY_S = 600.0
"""Pause after a build that failed: what was missing takes somebody to mend it."""
LOOK_S = 60.0
"""How often it is seen whether there is a card by now."""
TELL_S = 10.0
"""How often it is told anew how far a build is."""
MAX_SAID_CHARS = 120


@dataclass
class _State:
    """One engine that is asked for."""

    kind: Kind
    version: str
    as_of: str
    target: Path
    ready: Ready | None = None
    before: Path | None = None
    """The environment of another version that was made last."""
    began: float | None = None
    """Monotonic seconds when its build began; none while it does not run."""
    progress: Progress = field(default_factory=Progress)
    said: str = ""
    """The last line of what runs."""
    failed: str = ""
    elsewhere: bool = False
    """What was asked for is not made for machines like this one."""
    scope: trio.CancelScope | None = None
    """Of the build that runs."""


@dataclass
class Provisions:
    """What is asked for and what is there. Reads are for any thread; `run` builds."""

    root: Path
    """Holds a directory for each engine."""
    output: Path
    """Directory of what builds print, a file an engine."""
    wanted: Mapping[str, str]
    """Versions by engine as agent.yaml has them, `VERSION` or `VERSION@DAY`; empty installs none."""
    wheelhouse: str = ""
    has_cards: Callable[[], bool] = field(default=lambda: True)
    """Whether this machine has a card an engine could use."""
    machine: Machine = field(default_factory=Machine)
    """What an engine that asks for more than a card is held against."""
    on_change: Callable[[], None] = field(default=lambda: None)
    """Called when what `told` says is another."""
    recipes: Mapping[str, Recipe] = field(default_factory=lambda: RECIPES)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Where releases come from, by version; under the empty one for all others."""
    fetch: Fetch | None = None
    """Brings sets from the mirror."""
    kept: Path | None = None
    """File in which what the cluster asks for is kept; none keeps nothing."""
    retry_s: float = RETRY_S
    archive_bytes: int = DISK_BYTES
    """Free disk that an archive needs."""
    _states: dict[str, _State] = field(default_factory=dict, init=False)
    _cluster: dict[str, str] = field(default_factory=dict, init=False)
    _woken: trio.Event = field(default_factory=trio.Event, init=False)

    def __post_init__(self) -> None:
        """See what is there already."""
        if self.kept is not None:
            self._cluster = load_builds(self.kept)
        self._renew()

    def ask(self, builds: Mapping[str, str]) -> None:
        """Take up what the cluster asks for on this node, in place of what it asked for before."""
        builds = sound(builds)
        if builds == self._cluster:
            return
        log.info("The cluster asks for other engines here", extra={"builds": builds})
        self._cluster = builds
        if self.kept is not None:
            try:
                save_builds(self.kept, builds)
            except OSError as error:
                log.warning("What the cluster asks for cannot be kept for the next start: %s", error)
        self._renew()
        self._woken.set()
        self.on_change()

    def program(self, engine: str) -> Path | None:
        """What starts the engine: as it was asked for, or, while that is being made, as it was made last."""
        state = self._states.get(engine)
        if state is None:
            return None
        target = state.target if state.ready is not None else state.before
        return None if target is None else target / "bin" / state.kind.program

    def version(self, engine: str) -> str:
        """Of what `program` starts; empty when there is none."""
        state = self._states.get(engine)
        if state is None:
            return ""
        made = state.ready or (ready(state.before) if state.before is not None else None)
        return made.version if made is not None else ""

    def told(self, engine: str) -> EngineBuild | None:
        """How far an engine is that is not there yet; none for one that is not asked for, or not meant for here."""
        state = self._states.get(engine)
        if state is None or state.ready is not None or state.before is not None or not self._shown(state):
            return None
        return EngineBuild(engine=engine, version=state.version, usable=False, why_not=_words(state, self.output))

    def installing(self, engine: str) -> str:
        """What is to stand in the place of what the engine is started from now, and how far it is; else empty."""
        state = self._states.get(engine)
        if state is None or state.ready is not None or not self._shown(state):
            return ""
        return f"{state.version}: {_words(state, self.output)}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Build what is not there, for ever; a build that fails is tried again."""
        task_status.started()
        while True:
            waits = [await self._advance(state) for state in list(self._states.values())]
            with trio.move_on_after(min(waits, default=float("inf"))):
                await self._woken.wait()
            self._woken = trio.Event()

    async def _advance(self, state: _State) -> float:
        """Build it if it is to be built; seconds after which it is to be looked at again."""
        if state.ready is not None or state is not self._states.get(state.kind.engine):
            return float("inf")
        if state.kind.needs_card and not self.has_cards():
            return LOOK_S
        if not await trio.to_thread.run_sync(state.kind.meant):
            return self.retry_s
        await self._build(state)
        return float("inf") if state.ready is not None or state.elsewhere else self.retry_s

    async def _build(self, state: _State) -> None:
        engine = state.kind.engine
        state.began, state.said, state.failed, state.progress = time.monotonic(), "", "", Progress()
        log.info("Installing %s %s", engine, state.version)
        runner = Runner(self.output / f"engine-{engine}.log", lambda line: self._heard(state, line))
        job = Job(
            version=state.version,
            as_of=state.as_of,
            root=self.root,
            runner=runner,
            progress=state.progress,
            said=runner.note,
        )
        self.on_change()
        try:
            with trio.CancelScope() as state.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tell)
                    await self._install(state, job)
                    nursery.cancel_scope.cancel()
        finally:
            state.began = state.scope = None
        if state.failed:
            runner.note(f"not installed: {state.failed}")
            log.warning("%s %s is not installed: %s", engine, state.version, state.failed)
        self.on_change()

    async def _install(self, state: _State, job: Job) -> None:
        try:
            job.runner.begin()
            state.ready = await state.kind.install(job)
            job.said(f"installed: {state.ready.checked}")
            log.info("%s %s is installed", state.kind.engine, state.version, extra={"checked": state.ready.checked})
        except MeantElsewhere as error:
            state.elsewhere = True
            job.said(f"not meant for this machine: {error}")
            log.info("%s %s is not meant for this machine: %s", state.kind.engine, state.version, error)
        except BuildFailed as error:
            state.failed = error.message
        except OSError as error:
            state.failed = f"{error.filename or self.root} cannot be written: {error.strerror}"

    async def _tell(self) -> None:
        while True:
            await trio.sleep(TELL_S)
            self.on_change()

    def _heard(self, state: _State, line: str) -> None:
        state.progress.heard(line)
        state.said = clip(safe(line), MAX_SAID_CHARS)

    def _shown(self, state: _State) -> bool:
        return not state.elsewhere and (self.has_cards() or not state.kind.needs_card)

    def _renew(self) -> None:
        """States for what is asked for now. One that stays as it was goes on, and a build nobody asks for ends."""
        states: dict[str, _State] = {}
        for engine, wish in merged(self.wanted, self._cluster).items():
            kind = self._kind(engine)
            if kind is None:
                continue
            version, _, as_of = wish.partition("@")
            known = self._states.get(engine)
            if known is not None and (known.version, known.as_of) == (version, as_of):
                states[engine] = known
                continue
            root = self.root / engine
            target = root / kind.directory(version, as_of)
            state = _State(kind=kind, version=version, as_of=as_of, target=target)
            state.ready, state.before = ready(target), _latest(root)
            states[engine] = state
        dropped = [state for state in self._states.values() if state is not states.get(state.kind.engine)]
        self._states = states
        for state in dropped:
            if state.scope is not None:
                state.scope.cancel()

    def _kind(self, engine: str) -> Kind | None:
        if engine == RELEASED:
            return ReleasedEngine(origins=self.origins, machine=self.machine, disk_bytes=self.archive_bytes)
        recipe = self.recipes.get(engine)
        if recipe is None:
            return None
        return PackagedEngine(recipe, machine=self.machine, wheels=self._wheels)

    async def _wheels(self, progress: Progress) -> str:
        return await wheels(self.wheelhouse, self.fetch, progress)


def _latest(root: Path) -> Path | None:
    """Of an engine's whole environments the one that was built last."""
    made = [(found.built_at, path) for path in root.glob("*") if (found := ready(path)) is not None]
    return max(made)[1] if made else None


def _words(state: _State, output: Path) -> str:
    if state.began is not None:
        figures = f", {here}" if (here := state.progress.words()) else ""
        doing = f": {state.said}" if state.said else ""
        return f"being installed for {(time.monotonic() - state.began) / 60:.0f} min{figures}{doing}"
    if state.failed:
        return f"{state.failed} (all of it is in {output / f'engine-{state.kind.engine}.log'})"
    return "to be installed"


def provisions_of(config: AgentConfig, layout: AgentLayout) -> Provisions:
    """Those of an agent."""
    common = Origin(variant=config.llamacpp_variant, releases=config.llamacpp_releases, archive=config.llamacpp_archive)
    origins = {"": common}
    if config.llamacpp_sha256:
        # It is of one archive, and no other version can have it.
        origins[config.engines.get(RELEASED, "")] = Origin(
            variant=common.variant,
            releases=common.releases,
            archive=common.archive,
            sha256=config.llamacpp_sha256,
        )
    return Provisions(
        root=layout.data / "engines",
        output=layout.log,
        wanted=config.engines,
        wheelhouse=config.wheelhouse,
        origins=origins,
        kept=layout.data / "builds.json",
    )
