"""Installs the engines that agent.yaml asks for, one after the other, and says of each how far it is.

A machine without a card is not meant for them, and nothing is said there; one that is meant for them and cannot be
served says what is missing, and tries again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from agent.config import AgentConfig
from agent.provision.build import Order, Ready, build, directory_name, ready
from agent.provision.recipes import RECIPES, Recipe
from agent.provision.uv import BuildFailed, Runner
from llmgw.core.cluster import EngineBuild
from llmgw.core.layout import AgentLayout
from llmgw.core.text import clip, safe

log = logging.getLogger("agent.provision")

RETRY_S = 600.0
"""Pause after a build that failed: what was missing takes somebody to mend it."""
LOOK_S = 60.0
"""How often it is seen whether there is a card by now."""
MAX_SAID_CHARS = 120


@dataclass
class _State:
    """One engine that is asked for."""

    recipe: Recipe
    version: str
    as_of: str
    ready: Ready | None = None
    before: Path | None = None
    """The environment of another version that was made last."""
    began: float | None = None
    """Monotonic seconds when its build began; none while it does not run."""
    said: str = ""
    """The last line of what runs."""
    failed: str = ""


@dataclass
class Provisions:
    """What is asked for and what is there. Reads are for any thread; `run` builds."""

    root: Path
    """Holds a directory for each engine."""
    output: Path
    """Directory of what builds print, a file an engine."""
    wanted: Mapping[str, str]
    """Versions by engine, `VERSION` or `VERSION@DAY`; empty installs none."""
    wheelhouse: str = ""
    has_cards: Callable[[], bool] = field(default=lambda: True)
    """Whether this machine has a card an engine could use."""
    on_change: Callable[[], None] = field(default=lambda: None)
    """Called when what `told` says is another."""
    recipes: Mapping[str, Recipe] = field(default_factory=lambda: RECIPES)
    retry_s: float = RETRY_S
    _states: dict[str, _State] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """See what is there already."""
        for engine, wanted in self.wanted.items():
            version, _, as_of = wanted.partition("@")
            if version and engine in self.recipes:
                state = _State(recipe=self.recipes[engine], version=version, as_of=as_of)
                state.ready = ready(self._target(state))
                state.before = _latest(self.root / engine)
                self._states[engine] = state

    def program(self, engine: str) -> Path | None:
        """What starts the engine: as it was asked for, or, while that is being made, as it was made last."""
        state = self._states.get(engine)
        if state is None:
            return None
        target = self._target(state) if state.ready is not None else state.before
        return None if target is None else target / "bin" / state.recipe.program

    def told(self, engine: str) -> EngineBuild | None:
        """How far an engine is that is not there yet; none for one that is not asked for, or not meant for here."""
        state = self._states.get(engine)
        if state is None or state.ready is not None or state.before is not None or not self.has_cards():
            return None
        return EngineBuild(engine=engine, version=state.version, usable=False, why_not=_words(state, self.output))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Build what is not there, for ever; a build that fails is tried again."""
        task_status.started()
        while not self.has_cards():  # noqa: ASYNC110 - a driver that is loaded later tells nobody
            await trio.sleep(LOOK_S)
        while True:
            for state in self._states.values():
                if state.ready is None:
                    await self._build(state)
            if all(state.ready is not None for state in self._states.values()):
                await trio.sleep_forever()
            await trio.sleep(self.retry_s)

    async def _build(self, state: _State) -> None:
        state.began, state.said, state.failed = time.monotonic(), "", ""
        engine = state.recipe.engine
        log.info("Installing %s %s", engine, state.version)
        self.output.mkdir(parents=True, exist_ok=True)
        runner = Runner(self.output / f"engine-{engine}.log", lambda line: self._heard(state, line))
        order = Order(
            recipe=state.recipe,
            version=state.version,
            root=self.root / engine,
            cache=self.root / "uv-cache",
            as_of=state.as_of,
            wheelhouse=self.wheelhouse,
        )
        self.on_change()
        try:
            state.ready = await _in_thread(order, runner)
            log.info("%s %s is installed", engine, state.version, extra={"checked": state.ready.checked})
        except BuildFailed as error:
            state.failed = error.message
        except OSError as error:
            state.failed = f"{error.filename or order.root} cannot be written: {error.strerror}"
        finally:
            state.began = None
        if state.failed:
            log.warning("%s %s is not installed: %s", engine, state.version, state.failed)
        self.on_change()

    def _heard(self, state: _State, line: str) -> None:
        state.said = clip(safe(line), MAX_SAID_CHARS)

    def _target(self, state: _State) -> Path:
        return self.root / state.recipe.engine / directory_name(state.version, state.as_of)


def _latest(root: Path) -> Path | None:
    """Of an engine's whole environments the one that was built last."""
    made = [(found.built_at, path) for path in root.glob("*") if (found := ready(path)) is not None]
    return max(made)[1] if made else None


async def _in_thread(order: Order, runner: Runner) -> Ready:
    """The build in a thread; a cancellation ends it, and what it started, first."""

    async def stop_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            runner.stop()

    outcome: Ready | BuildFailed | OSError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_cancelled)
        try:
            outcome = await trio.to_thread.run_sync(build, order, runner, limiter=trio.CapacityLimiter(1))
        except (BuildFailed, OSError) as error:
            outcome = error  # raised below: a nursery would wrap it
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()
    if isinstance(outcome, Ready):
        return outcome
    raise outcome


def _words(state: _State, output: Path) -> str:
    if state.began is not None:
        doing = f": {state.said}" if state.said else ""
        return f"being installed for {(time.monotonic() - state.began) / 60:.0f} min{doing}"
    if state.failed:
        return f"{state.failed} (all of it is in {output / f'engine-{state.recipe.engine}.log'})"
    return "to be installed"


def provisions_of(config: AgentConfig, layout: AgentLayout) -> Provisions:
    """Those of an agent."""
    return Provisions(
        root=layout.data / "engines", output=layout.log, wanted=config.engines, wheelhouse=config.wheelhouse
    )
