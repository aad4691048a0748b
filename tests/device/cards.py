"""One prepared script for a machine with a real card: what our reader says of it, beside what `nvidia-smi` says.

`python -m tests.device.cards OUT [SECONDS]` takes two minutes at most. It reads facts, figures and wear, then samples
while idle and while a matrix product runs, and writes into OUT:

- `tape_real.json`: every answer of NVML, UUIDs rewritten, ready to be a fixture of tests/corpora/gpu;
- `nvidia_smi.xml`: the tool's own words at the same time, UUIDs and serial numbers rewritten;
- `figures.md`: our figures beside the tool's, and what a sample costs.

Exit 1 when the two disagree, or a figure that the card has is missing; each such finding is a line of its own.
"""

import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from agent.discovery.gpu import CardReading, CardSample, ReaderFailed
from agent.discovery.nvml import Nvml
from agent.discovery.smi import Smi
from agent.discovery.smi_xml import parse_cards, parse_document, parse_samples
from llmgw.core import throttle
from tests.support.nvml_tape import Recorder, save

SECONDS = 20.0
EVERY_S = 1.0
COST_ROUNDS = 200
MIB = 1024 * 1024
PROFILED_FROM = (9, 0)
"""Compute capability of Hopper: from there on the driver itself has a profile."""
_SECRET = re.compile(r"<(serial|board_id|gpu_fru_part_number|host_id|chassis_serial_number)>[^<]*</\1>")


@dataclass(kw_only=True)
class Session:
    """What was seen."""

    cards: CardReading
    xml: str
    """The tool's document while the card was idle."""
    idle: list[tuple[CardSample, ...]] = field(default_factory=list)
    busy: list[tuple[CardSample, ...]] = field(default_factory=list)
    busy_xml: str = ""
    """And while it worked."""
    wear: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sample_ms: float = 0.0
    findings: list[str] = field(default_factory=list)


@contextlib.contextmanager
def product(seconds: float) -> Iterator[None]:
    """A matrix product on the first card, in a process of its own. Raises ReaderFailed when it was none."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.device.matrix", str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield
        said = process.communicate(timeout=seconds + 60)[0].decode(errors="replace").strip()
        print(said)
        if process.returncode:
            raise ReaderFailed(said)
    finally:
        process.kill()
        process.wait()


def hold(
    reader: Nvml, smi: Smi, load: Callable[[], AbstractContextManager[None]], *, rounds: int, pause: Callable[[], None]
) -> Session:
    """The session. Raises ReaderFailed when there is no card to read."""
    reader.open()
    session = Session(cards=reader.cards(), xml=smi.say("-q", "-x"))
    for _ in range(rounds):
        session.idle.append(reader.sample())
        pause()
    session.wear = {uuid: wear.problems() for uuid, wear in reader.wear().items()}
    with load():
        for number in range(rounds):
            pause()
            session.busy.append(reader.sample())
            if number == rounds // 2:
                session.busy_xml = smi.say("-q", "-x")
    reader.close()
    session.findings = findings(session)
    return session


def cost_ms(reader: Nvml) -> float:
    """CPU of one sample, the median of many; the reader is one that nobody records."""
    reader.open()
    times = []
    for _ in range(COST_ROUNDS):
        began = time.process_time()
        reader.sample()
        times.append(1000 * (time.process_time() - began))
    reader.close()
    return statistics.median(times)


def findings(session: Session) -> list[str]:
    """Where we and the tool disagree, and what is missing."""
    found = []
    document = parse_document(session.xml)
    theirs = {card.uuid: card for card in parse_cards(document).cards if not card.parent}
    ours = {card.uuid: card for card in session.cards.cards if not card.parent}
    if set(theirs) != set(ours):
        found.append(f"the tool lists {len(theirs)} cards and we list {len(ours)}, not all the same")
    for uuid in set(theirs) & set(ours):
        for name in ("name", "gpu_class", "memory_total_bytes", "bus_id", "pcie_generation", "pcie_width"):
            mine, other = getattr(ours[uuid], name), getattr(theirs[uuid], name)
            if mine != other:
                found.append(f"{name} is {mine} for us and {other} for the tool")
    split = {card.parent for card in session.cards.cards if card.parent}
    for uuid, card in ours.items():
        major, _, minor = card.compute_capability.partition(".")
        last = _of(session.busy[-1], uuid)
        if (int(major or 0), int(minor or 0)) >= PROFILED_FROM and uuid not in split and not last.profile_source:
            found.append(f"{card.name} has no profile though its driver should have one")
    return found + _first_card_works(session)


def _first_card_works(session: Session) -> list[str]:
    """The product ran on the first card: it has to show in every figure that says something of work."""
    uuid = session.cards.cards[0].uuid
    idle, busy = _of(session.idle[-1], uuid), _of(session.busy[len(session.busy) // 2], uuid)
    found = []
    for name in ("utilization_percent", "power_w", "sm_active_percent", "memory_used_bytes"):
        before, after = getattr(idle, name), getattr(busy, name)
        if before is not None and after is not None and after <= before:
            found.append(f"{name} is {before} at rest and {after} under the matrix product")
    return found


def report(session: Session) -> str:
    """Our figures beside the tool's."""
    lines = ["| card | figure | at rest: we | tool | at work: we | tool |", "|---|---|---|---|---|---|"]
    theirs = {s.uuid: s for s in parse_samples(parse_document(session.xml))}
    busy_theirs = {s.uuid: s for s in parse_samples(parse_document(session.busy_xml))}
    middle = session.busy[len(session.busy) // 2]
    for card in session.cards.cards:
        ours, busy = _of(session.idle[-1], card.uuid), _of(middle, card.uuid)
        for name in CardSample.__struct_fields__:
            if name == "uuid":
                continue
            cells = [
                _cell(name, getattr(side, name, None))
                for side in (ours, theirs.get(card.uuid), busy, busy_theirs.get(card.uuid))
            ]
            if any(cells):
                lines.append(
                    f"| {card.index} {card.name} | {name} | " + " | ".join(cell or "-" for cell in cells) + " |"
                )
    lines += ["", f"A sample of {len(session.cards.cards)} cards costs {session.sample_ms:.2f} ms of CPU (median).", ""]
    lines += [f"- {problem}" for problem in session.cards.problems]
    lines += [f"- wear: {problem}" for problems in session.wear.values() for problem in problems]
    return "\n".join([*lines, *(f"- DIFFERS: {finding}" for finding in session.findings), ""])


def anonymous(text: str, cards: CardReading) -> str:
    """The text without what identifies the machine."""
    for number, card in enumerate(cards.cards):
        kind, _, _ = card.uuid.partition("-")
        text = text.replace(card.uuid, f"{kind}-00000000-0000-0000-0000-{number:012}")
    return _SECRET.sub(r"<\1>0</\1>", text)


def _of(samples: tuple[CardSample, ...], uuid: str) -> CardSample:
    return next((sample for sample in samples if sample.uuid == uuid), CardSample(uuid=uuid))


def _cell(name: str, value: object) -> str:
    if value is None or value == "":
        return ""
    if name == "throttle_reasons":
        assert isinstance(value, int)
        return ", ".join(throttle.words(value)) or ("nothing" if value else "")
    if name == "memory_used_bytes":
        assert isinstance(value, int)
        return f"{value / MIB:.0f} MiB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def write(session: Session, recorder: Recorder, out: Path, about: str) -> None:
    """The three files."""
    out.mkdir(parents=True, exist_ok=True)
    tape = json.loads(anonymous(json.dumps(recorder.tape(about)), session.cards))
    save(tape, out / "tape_real.json")
    (out / "nvidia_smi.xml").write_text(anonymous(session.xml, session.cards))
    (out / "figures.md").write_text(anonymous(report(session), session.cards))


def main(arguments: list[str], library: ModuleType | None = None) -> int:
    """The command line."""
    if library is None:
        import pynvml

        library = pynvml
    seconds = float(arguments[1]) if len(arguments) > 1 else SECONDS
    recorder = Recorder(library)
    rounds = max(3, round(seconds / EVERY_S / 2))
    try:
        session = hold(
            Nvml(recorder),
            Smi(),
            lambda: product(seconds),
            rounds=rounds,
            pause=lambda: time.sleep(EVERY_S),
        )
        session.sample_ms = cost_ms(Nvml(library))
    except ReaderFailed as error:
        print(f"no session: {error}", file=sys.stderr)
        return 1
    write(
        session, recorder, Path(arguments[0]), f"recorded {time.strftime('%Y-%m-%d', time.gmtime())}, UUIDs rewritten"
    )
    print(report(session))
    return 1 if session.findings else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
