"""What changed between two states, as keys. Merging two diffs in order tells the same as applying them one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Diff:
    """Keys by topic. A key is in one of the two, never in both."""

    changed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Rows that are new or differ."""
    gone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Rows that are no longer there."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone)

    def keys(self, *topics: str) -> frozenset[str]:
        """Every key of these topics that changed or went."""
        found = NOTHING
        for topic in topics:
            found |= self.changed.get(topic, NOTHING) | self.gone.get(topic, NOTHING)
        return found

    def touches(self, *topics: str) -> bool:
        """Whether anything of these topics changed."""
        return any(self.changed.get(topic) or self.gone.get(topic) for topic in topics)

    def then(self, later: "Diff") -> "Diff":
        """This diff and the one after it, as one."""
        if not self:
            return later
        changed, gone = dict(self.changed), dict(self.gone)
        for topic in {*later.changed, *later.gone}:
            newly, left = later.changed.get(topic, NOTHING), later.gone.get(topic, NOTHING)
            changed[topic] = (changed.get(topic, NOTHING) - left) | newly
            gone[topic] = (gone.get(topic, NOTHING) - newly) | left
        return Diff(
            changed={topic: keys for topic, keys in changed.items() if keys},
            gone={topic: keys for topic, keys in gone.items() if keys},
        )
