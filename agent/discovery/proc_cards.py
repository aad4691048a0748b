"""`/proc/driver/nvidia/gpus`: the cards the kernel's driver knows, reachable or not. Nothing is spawned for it."""

from pathlib import Path

from agent.discovery.gpu import LostCard
from agent.discovery.words import UUID, bus_id, said

MAX_CARDS = 256
_MAX_READ = 16 * 1024


def parse_information(text: str) -> dict[str, str]:
    """`/proc/driver/nvidia/gpus/*/information` by key; keys and values are parted by blanks and tabs, as it comes."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): said(value) for key, colon, value in pairs if colon}


def known_cards(root: Path = Path("/")) -> tuple[LostCard, ...]:
    """Every card the driver was loaded for, with what identifies it; none without a driver."""
    try:
        directories = sorted((root / "proc/driver/nvidia/gpus").iterdir())[:MAX_CARDS]
    except OSError:
        return ()
    found = []
    for directory in directories:
        try:
            with (directory / "information").open("rb") as file:
                told = parse_information(file.read(_MAX_READ).decode(errors="replace"))
        except OSError:
            continue
        uuid = told.get("GPU UUID", "")
        if told.get("GPU Excluded", "No") != "Yes":
            found.append(
                LostCard(
                    bus_id=bus_id(told.get("Bus Location")) or bus_id(directory.name),
                    why="the driver does not answer for it",
                    uuid=uuid if UUID.fullmatch(uuid) else "",
                    name=told.get("Model", ""),
                )
            )
    return tuple(found)
