"""Documents of bands: in which order requests wait where a model takes no more."""

import msgspec


class BandInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A band, and who is in it."""

    name: str
    priority: int
    """Lines of a higher one go first."""
    queue_ttl: float
    """Seconds a request may wait."""
    own_ttl: bool = False
    """Whether that is the band's own, and not `router.timeouts.queue`."""
    keys: int = 0
    """Living keys that name it."""
    teams: int = 0
    """Teams whose keys are in it, if they name no other."""


class BandChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl bands set`: what is absent stays as it is; a band that is not there is made."""

    priority: int | msgspec.UnsetType = msgspec.UNSET
    queue_ttl: float | msgspec.UnsetType | None = msgspec.UNSET
    """Null is `router.timeouts.queue`."""


class BandChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl keys|teams band`."""

    band: str | None
    """A band that is there; null is the team's for a key, and the default one for a team."""
