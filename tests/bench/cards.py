"""What the agent's look at its cards costs: `python -m tests.bench.cards`, 8 cards on tape.

The library's own time is not in it: a tape answers from memory. `tests.device.cards` measures it on a real card.
"""

import statistics
import time
from pathlib import Path

from agent.columns import MachineFigures, sensors_message
from agent.discovery.nvml import SAMPLE_EVERY_S, Nvml
from tests.bench.report import spread
from tests.support.gpu_files import OWN
from tests.support.nvml_tape import TapeLibrary, load

ROUNDS = 7
SAMPLES = 200


def measure(tape: Path, *, rounds: int = ROUNDS, samples: int = SAMPLES) -> tuple[list[float], float, int]:
    """Milliseconds of CPU a sample with its message, by round; library calls a sample; bytes of a message."""
    library = TapeLibrary(load(tape))
    reader = Nvml(library)
    reader.open()
    reader.sample()
    spent: list[float] = []
    size = 0
    before = sum(library.asked.values())
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(samples):
            size = len(bytes(sensors_message(MachineFigures(cpu_percent=1.0), reader.sample(), {})))
        spent.append(1000 * (time.process_time() - began) / samples)
    return spent, (sum(library.asked.values()) - before) / rounds / samples, size


def main() -> None:
    """Print the figures."""
    spent, calls, size = measure(OWN / "tape_8xh100.json")
    share = 100 * statistics.median(spent) / 1000 / SAMPLE_EVERY_S
    print(f"a sample of 8 cards: {spread(spent, 2)} ms of CPU, {calls:.0f} library calls, {size} bytes told")
    print(f"every {SAMPLE_EVERY_S:g} s that is {share:.3f} % of one core")


if __name__ == "__main__":
    main()
