"""The bands that operators set, one setting for all of them; keys and teams name them."""

from collections.abc import Mapping

import msgspec

from llmgw.core.admission import DEFAULT_BAND, Band, band_names, read_bands
from llmgw.core.errors import Conflict, InvalidInput, NotFound
from llmgw.core.near import did_you_mean
from llmgw.store import audit
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

KEY = "router.bands"
TOPIC = "settings"
_NAMED = 5
"""Names that a refusal gives of those who are in a band."""

_SQL = load("bands")


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    value: str


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A living key, or a team, that is in a band."""

    kind: str
    """`key` or `team`."""
    id: str
    name: str
    """A team's is its id."""
    band: str

    @property
    def called(self) -> str:
        """`key nightly (key-1)`, `team blue`."""
        return f"{self.kind} {self.name}" if self.name == self.id else f"{self.kind} {self.name} ({self.id})"


def bands(conn: Conn) -> tuple[Band, ...]:
    """Those that were set, by name."""
    return _read(conn, _SQL["read"])


def users(conn: Conn) -> tuple[User, ...]:
    """Who names a band."""
    return fetch_all(conn, _SQL["users"], User)


def hold(conn: Conn, name: str) -> None:
    """Raise InvalidInput unless the band is there; it cannot be removed before this transaction ends."""
    there = band_names(_read(conn, _SQL["hold"]))
    if name not in there:
        raise InvalidInput(
            f"there is no band {name!r}: there are {', '.join(there)}; make one with llmgw ctl bands set", field="band"
        )


def put(
    conn: Conn, name: str, change: Mapping[str, int | float | None], *, most: int, actor: str
) -> tuple[Band | None, Band]:
    """Change a band or make it; before and after. Raises Conflict when it would be one more than `most`."""
    known = {band.name: band for band in _locked(conn)}
    before = known.get(name)
    after = msgspec.structs.replace(before or Band(name=name), **change)
    if after == before:
        return before, after
    if before is None and len(known) >= most:
        raise Conflict(f"there are {len(known)} bands already, {most} at most: remove one first")
    _write(conn, known | {name: after})
    audit.record(conn, actor=actor, action="band.set", target=name, before=before, after=after)
    return before, after


def remove(conn: Conn, name: str, *, actor: str) -> Band:
    """Remove a band that nobody is in. Raises NotFound, or Conflict naming who is."""
    known = {band.name: band for band in _locked(conn)}
    before = known.pop(name, None)
    if before is None:
        raise NotFound(
            f"band {name!r} is as it always is: there is nothing to remove"
            if name == DEFAULT_BAND
            else f"there is no band {name!r}{did_you_mean(name, known) or ': see llmgw ctl bands list'}"
        )
    inside = [user.called for user in users(conn) if user.band == name]
    if inside and name != DEFAULT_BAND:
        more = f" and {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
        raise Conflict(
            f"band {name!r} is used by {', '.join(inside[:_NAMED])}{more}: put them in another first, with "
            "llmgw ctl keys band and llmgw ctl teams band"
        )
    _write(conn, known)
    audit.record(conn, actor=actor, action="band.remove", target=name, before=before)
    return before


def _read(conn: Conn, statement: bytes) -> tuple[Band, ...]:
    row = fetch_one(conn, statement, _Value, {"key": KEY})
    return read_bands(row.value.encode()) if row is not None else ()


def _locked(conn: Conn) -> tuple[Band, ...]:
    execute(conn, _SQL["begin"], {"key": KEY})
    return _read(conn, _SQL["lock"])


def _write(conn: Conn, known: Mapping[str, Band]) -> None:
    value = {band.name: {"priority": band.priority, "queue_ttl": band.queue_ttl} for band in known.values()}
    execute(conn, _SQL["put"], {"key": KEY, "value": msgspec.json.encode(value).decode()})
    notify(conn, TOPIC, KEY)
