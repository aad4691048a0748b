"""What an audited change was made to, as people call it."""

from typing import Protocol


class Audited(Protocol):
    """An entry of the audit, as the admin API and the live feed have it."""

    @property
    def action(self) -> str:
        """`key.limits`."""

    @property
    def target(self) -> str:
        """What was changed: a name, a key's id."""

    @property
    def before(self) -> object:
        """JSON value of the target before."""

    @property
    def after(self) -> object:
        """JSON value after."""


def target_called(entry: Audited) -> str:
    """The target; a key, which is known by its id, with its name: `key-1 (nightly)`."""
    if not entry.action.startswith("key."):
        return entry.target
    for side in (entry.after, entry.before):
        name = side.get("name") if isinstance(side, dict) else None
        if isinstance(name, str) and name != entry.target:
            return f"{entry.target} ({name})"
    return entry.target
