"""`make bench`: what our router costs beside others and beside nothing; how fast demo, live feed and console are.

    python -m tests.bench.run [--quick] [--only PARTS] [--gateways direct,nginx,router,choosing,vllm-router,litellm|all]
                              [--retakes N] [--minutes N] [--trace FILE]

Rounds are interleaved: every gateway has its turn in each, so that a slower minute of the machine hits all. CPU is
user and system time of all of a gateway's processes, divided by the answers the load generator received. Nothing here
passes or fails on time; a stream that arrives wrong does fail the run. All of it stays on loopback and is bounded in
count and time. Results go to `bench-out/` as text and JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from tests.bench.console import ConsoleFigures, console_text, measure_console
from tests.bench.demo import measure_demo
from tests.bench.firsttoken import first_token_text, measure_first_token
from tests.bench.fleet import fleet_text, measure_fleet
from tests.bench.flood import flood_text, measure_flood
from tests.bench.lineup import GATEWAYS, USUAL, makers, secured
from tests.bench.native import Missing, compile_client, compile_engine
from tests.bench.openstreams import measure_open_streams, open_streams_text
from tests.bench.overload import measure_overload, overload_text
from tests.bench.prefix import measure_prefix, prefix_text
from tests.bench.replayed import measure_replayed, replayed_text
from tests.bench.report import Figures, machine, text
from tests.bench.routers import measure_routers, routers_text
from tests.bench.steady import measure_steady, steady_text
from tests.bench.streams import MODES, Effort, measure_mode
from tests.bench.talks import prompts
from tests.bench.traces import arrivals
from tests.bench.watch import WatchFigures, measure_watch, watch_text
from tests.bench.weights import measure_weights, weights_text

ROUTER_PARTS = ["tls", "first-token", "routers-2", "streams-5000", "steady", "prefix", "replay", "overload", "flood"]
OTHER_PARTS = ["demo", "watch", "fleet", "console", "weights"]
PARTS = [*MODES, *ROUTER_PARTS, *OTHER_PARTS]
DEFAULT_PARTS = "burst,paced,tls,first-token,routers-2,demo,watch,console,weights"
TLS_SHAPES = ("burst", "paced")
T = TypeVar("T")
OUT = Path("bench-out")
MOST_ARRIVALS = 3000
"""Of a trace, that are read."""
MAX_RETAKES = 50
MAX_MINUTES = 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    rounds: int
    seconds: float
    demo_rounds: int
    watch_rounds: int = 1
    watch_s: float = 5.0
    fleet_s: float = 60.0
    """How long a fleet is watched at rest."""
    console_rounds: int = 3
    console_s: float = 6.0
    minutes: float = 0.5
    """How long the console is looked at before its memory is taken."""
    prompts: int = 1500
    """How many are sent to each router of the part `prefix`, in one round."""
    trace: Path | None = None
    """Where they, and the requests of the part `replay`, come from; none makes them."""
    overload_s: float = 20.0
    """How long each load of the parts `overload` and `replay` lasts."""
    steady_minutes: float = 1.0
    """How long a router is left without its control plane."""
    weights_bytes: int = 1_000_000_000
    """Of the file, and of the set of four, that the part `weights` moves and hashes."""
    large_bytes: int = 10_000_000_000
    """Of the set it watches memory with; 0 leaves that out."""
    retakes: int = 2
    """How often a sample is taken again because others kept the machine busy."""

    @property
    def effort(self) -> Effort:
        """For the parts that load gateways."""
        return Effort(rounds=self.rounds, seconds=self.seconds, retakes=self.retakes)


FULL = Plan(rounds=5, seconds=4.0, demo_rounds=3, watch_rounds=3, watch_s=10.0, console_rounds=5, console_s=20.0)

QUICK = Plan(
    rounds=3,
    seconds=2.0,
    demo_rounds=1,
    prompts=400,
    overload_s=5.0,
    weights_bytes=256_000_000,
    large_bytes=2_000_000_000,
)


def run(parts: list[str], names: list[str], plan: Plan, argv: Sequence[str]) -> Figures:
    """Everything that was asked for."""
    figures = Figures(machine=machine(argv))
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as made:
        directory = Path(made)
        loaded = [part for part in parts if part in [*MODES, *ROUTER_PARTS]]
        try:
            programs = (compile_engine(directory), compile_client(directory)) if loaded else None
        except Missing as error:
            figures.skipped[",".join(loaded)] = str(error)
            programs = None
        for part in loaded if programs is not None else []:
            assert programs is not None
            (directory / part).mkdir()
            print(f"measuring {part} …", file=sys.stderr, flush=True)
            try:
                load_gateways(part, names, plan, programs, figures, directory / part)
            except Missing as error:
                figures.skipped[part] = str(error)
        for model in ("sim", "smollm2") if "demo" in parts else ():
            print(f"measuring the demo with {model} …", file=sys.stderr, flush=True)
            try:
                figures.demos.append(measure_demo(model, directory, plan.demo_rounds))
            except Missing as error:
                figures.skipped[f"demo {model}"] = str(error)
        if "watch" in parts:
            print("measuring the live feed …", file=sys.stderr, flush=True)
            figures.watch = measure_watch(directory, plan.watch_rounds, plan.watch_s)
        if "fleet" in parts:
            print("measuring a fleet …", file=sys.stderr, flush=True)
            watch_fleet(plan, figures, directory)
        if "console" in parts:
            print("measuring the console …", file=sys.stderr, flush=True)
            figures.console = measure_console(
                directory, rounds=plan.console_rounds, seconds=plan.console_s, minutes=plan.minutes
            )
        if "weights" in parts:
            print("measuring weights …", file=sys.stderr, flush=True)
            move_weights(plan, figures, directory)
    return figures


def watch_fleet(plan: Plan, figures: Figures, directory: Path) -> None:
    """The part `fleet`, or why it was left out."""
    made = directory / "fleet"
    made.mkdir()
    try:
        found = measure_fleet(plan.fleet_s, made)
    except Missing as error:
        figures.skipped["fleet"] = str(error)
    else:
        figures.add("fleet", found, fleet_text(found), [])


def move_weights(plan: Plan, figures: Figures, directory: Path) -> None:
    """The part `weights`, or why it was left out."""
    made = directory / "weights"
    made.mkdir()
    try:
        found = measure_weights(plan.rounds, plan.weights_bytes, plan.large_bytes, made)
    except Missing as error:
        figures.skipped["weights"] = str(error)
    else:
        figures.add("weights", found, weights_text(found), found.wrong())


def load_gateways(
    part: str, names: list[str], plan: Plan, programs: tuple[Path, Path], figures: Figures, directory: Path
) -> None:
    """One of the parts that load gateways; raises Missing."""
    if part in MODES:
        figures.modes.append(measure_mode(MODES[part], makers(names), plan.effort, programs[0], directory))
    elif part == "tls":
        for shape in TLS_SHAPES:
            made = directory / shape
            made.mkdir()
            makes = {name: make for name, make in secured(made).items() if name in names}
            figures.modes.append(
                measure_mode(MODES[shape], makes, plan.effort, programs[0], made, title=f"{shape} over TLS")
            )
    elif part == "first-token":
        first = measure_first_token(makers(names), plan.effort, programs, directory)
        figures.add(part, first, first_token_text(first), first.wrong())
    elif part == "routers-2":
        routers = measure_routers(plan.effort, programs[0], directory)
        wrong = [f"{count} routers: {found}" for count, found in routers.checked.items() if found != "ok"]
        figures.add(part, routers, routers_text(routers), wrong)
    elif part == "streams-5000":
        streams = measure_open_streams(makers(names), programs, directory)
        figures.add(part, streams, open_streams_text(streams), streams.wrong())
    elif part == "overload":
        overload = measure_overload(min(3, plan.rounds), plan.overload_s, directory)
        figures.add(part, overload, overload_text(overload), overload.wrong())
    elif part == "flood":
        flood = measure_flood(plan.rounds, directory)
        figures.add(part, flood, flood_text(flood), [])
    elif part == "prefix":
        asked, trace = of_trace(prompts, plan, plan.prompts)
        prefix = measure_prefix(names, min(3, plan.rounds), asked, trace, directory)
        figures.add(part, prefix, prefix_text(prefix), prefix.wrong())
    elif part == "replay":
        found, trace = of_trace(arrivals, plan, MOST_ARRIVALS)
        played = measure_replayed(names, min(3, plan.rounds), plan.overload_s, found, trace, directory)
        figures.add(part, played, replayed_text(played), played.wrong())
    else:
        steady = measure_steady(plan.steady_minutes, programs, directory / "router")
        wrong = [f"{steady.seen.wrong} streams: {steady.seen.why}"] if steady.seen.wrong else []
        figures.add(part, steady, steady_text(steady), wrong)


def of_trace(read: Callable[[Path | None, int], list[T]], plan: Plan, most: int) -> tuple[list[T], str]:
    """What is read of the plan's trace, and the trace's name; raises Missing for a file that is none."""
    try:
        return read(plan.trace, most), plan.trace.name if plan.trace is not None else "a made trace"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Missing(f"{plan.trace} is no trace that can be read: {error!r}") from None


def write(figures: Figures) -> str:
    """Write both files under `bench-out/`; returns the text."""
    OUT.mkdir(exist_ok=True)
    shown = text(figures)
    if isinstance(figures.watch, WatchFigures):
        shown += f"\n{watch_text(figures.watch)}\n"
    if isinstance(figures.console, ConsoleFigures):
        shown += f"\n{console_text(figures.console)}\n"
    name = time.strftime("%Y%m%d-%H%M%S")
    (OUT / f"{name}.txt").write_text(shown)
    (OUT / f"{name}.json").write_text(json.dumps(asdict(figures), indent=1, ensure_ascii=False) + "\n")
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 when a stream came out wrong, 2 for a bad command line."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m tests.bench.run", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--only", default=DEFAULT_PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--gateways", default=",".join(USUAL), help=f"all, or of {', '.join(GATEWAYS)}")
    parser.add_argument("--retakes", type=int, default=2, help="how often a sample others disturbed is taken again")
    parser.add_argument("--minutes", type=float, help="of the steady part, and of the console's memory")
    parser.add_argument(
        "--trace", type=Path, help="for prefix: JSON lines with hash_ids; for replay: those, or Azure's CSV"
    )
    flags = parser.parse_args(given)
    parts, names = flags.only.split(","), list(GATEWAYS) if flags.gateways == "all" else flags.gateways.split(",")
    for value, known in ((parts, PARTS), (names, list(GATEWAYS))):
        if unknown := [part for part in value if part not in known]:
            parser.error(f"{', '.join(unknown)} is not known; there are {', '.join(known)}")
    plan = replace(QUICK if flags.quick else FULL, retakes=max(0, min(flags.retakes, MAX_RETAKES)))
    plan = replace(plan, trace=flags.trace)
    if flags.minutes is not None:
        minutes = max(0.1, min(flags.minutes, MAX_MINUTES))
        plan = replace(plan, minutes=minutes, steady_minutes=minutes)
    figures = run(parts, names, plan, given)
    print(write(figures))
    wrong = [name for mode in figures.modes for name, found in mode.checked.items() if found != "ok"]
    return 1 if wrong or figures.wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
