"""What changed since somebody last looked, by name and not by value: bounded, whoever looks and however seldom.

Services that change something note it here in passing; the live feed takes the notes and reads the present.
"""

from dataclasses import dataclass, field

from llmgw.control.wake import Wake

MAX_NAMES = 20_000
"""With more names than this in one set, all of them count as changed."""


@dataclass(slots=True)
class Touches:
    """What changed. `everything` outranks the names."""

    nodes: set[str] = field(default_factory=set)
    figures: set[str] = field(default_factory=set)
    """Nodes with new sensor readings, or heard again."""
    replicas: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    """Sets on the mirror, by canonical source."""
    catalog: bool = True
    everything: bool = True


class Touched:
    """Takes notes for one reader. Immediate, and of the trio thread."""

    def __init__(self) -> None:
        self.wake = Wake()
        """Set with every note."""
        self._notes = Touches()

    def node(self, name: str) -> None:
        """The node is there, is gone, or is not what it was, its figures aside."""
        self._note(self._notes.nodes, name)

    def figures(self, name: str) -> None:
        """The node has new readings, or was heard."""
        self._note(self._notes.figures, name)

    def replica(self, replica_id: str) -> None:
        """The replica is there, is gone, or moved."""
        self._note(self._notes.replicas, replica_id)

    def source(self, source: str) -> None:
        """A set on the mirror changed its state."""
        self._note(self._notes.sources, source)

    def catalog(self) -> None:
        """The catalog was read again."""
        self._notes.catalog = True
        self.wake.set()

    def everything(self) -> None:
        """Nothing known before may be relied on."""
        self._notes.everything = True
        self.wake.set()

    def take(self) -> Touches:
        """The notes since the last call."""
        taken, self._notes = self._notes, Touches(catalog=False, everything=False)
        return taken

    def _note(self, names: set[str], name: str) -> None:
        names.add(name)
        if len(names) > MAX_NAMES:
            names.clear()
            self._notes.everything = True
        self.wake.set()
