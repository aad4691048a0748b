"""Documents about weights on the mirror."""

from typing import Annotated

import msgspec

MAX_ORPHANS = 10_000
"""Sets one removal may name."""


class WeightsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A set of weights on the mirror."""

    source: str
    id: str
    state: str
    """`resolving`, `fetching`, `checking`, `ready` or `failed`."""
    done_bytes: int = 0
    total_bytes: int = 0
    """0 is unknown."""
    files: int = 0
    message: str = ""
    """Why it failed, or what it waits for."""
    models: tuple[str, ...] = ()
    """Models that need it; none is an orphan."""
    revision: str = ""
    """What the source was pinned to (a commit, a version), once that is known."""
    phase: str = ""
    """`checking` while a ready set is read back on demand; it is served meanwhile."""
    checked_bytes: int = 0
    """How far that is, of `total_bytes`."""
    verdict: str = ""
    """What the last check on demand found, as a sentence."""
    intact: bool | None = None
    """Whether it found every file as it should be; none before a check is over."""
    in_place: bool = False
    """Whether it is served from where an operator put it, so that the mirror holds nothing of it."""
    fetched: float | None = None
    """Unix seconds when it became whole."""
    used: float | None = None
    """Unix seconds when a node last copied from it, exact to ten minutes; none since it came."""


class WeightsFetch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl weights fetch`."""

    source: str


class WeightsVerify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl weights verify`."""

    source: str


class OrphanInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A set on the mirror that no model of the catalog needs, and nothing works on."""

    id: str
    source: str = ""
    """Empty for a leftover: files of a set that was given up, of which the mirror knows no more than the directory."""
    state: str
    """`ready`, `failed` or `leftover`."""
    bytes: int
    """What removing it frees; next to nothing where the files are served from where an operator put them."""
    files: int = 0
    in_place: bool = False
    """Whether its files stay when it is removed, as they lie where an operator put them."""
    fetched: float | None = None
    """Unix seconds when it became whole, or when a leftover last changed."""
    used: float | None = None
    """Unix seconds when a node last copied from it; none since it came."""


class WeightsOrphans(msgspec.Struct, frozen=True, kw_only=True):
    """Every orphan, the largest first."""

    orphans: tuple[OrphanInfo, ...] = ()
    total_bytes: int = 0
    """What removing all of them frees."""


class OrphansRemove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl weights remove --orphans`: the orphans that were listed, so that nothing goes that nobody has seen."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MAX_ORPHANS)]
