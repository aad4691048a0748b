"""`ctl bands list|set|remove`, `ctl keys band` and `ctl teams band`."""

import math

import msgspec

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused, Usage
from llmgw.api.types import BandChange, BandInfo
from llmgw.cli.context import Context, Handler
from llmgw.core.money import NONE
from llmgw.core.units import plural

_MAX_DIGITS = 9


def bands(ctx: Context) -> None:
    """Every band, those that go first first."""
    answer = ctx.client.bands()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    rows = [[band.name, str(band.priority), _waits(band), str(band.keys), str(band.teams)] for band in answer]
    ctx.out.table(["BAND", "PRIORITY", "WAITS", "KEYS", "TEAMS"], rows, empty="there is no band")


def _waits(band: BandInfo) -> str:
    return f"{band.queue_ttl:g} s" + ("" if band.own_ttl else " (router.timeouts.queue)")


def change(ctx: Context) -> None:
    """Make or change a band."""
    args = ctx.args
    result = ctx.client.set_band(
        args.name,
        BandChange(
            priority=msgspec.UNSET if args.priority is None else _priority(args.priority),
            queue_ttl=msgspec.UNSET if args.queue_ttl is None else _seconds(args.queue_ttl),
        ),
    )
    ctx.done(result, result.message)


def _priority(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise Usage(f"--priority: {text[:40]!r} is no whole number: give one such as 10 or -5")
    return int(text)


def _seconds(text: str) -> float | None:
    if text == NONE:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise Usage(f"--queue-ttl: {text[:40]!r} is no number of seconds: give one such as 30 or 0.5, or none")
    return seconds


def remove(ctx: Context) -> None:
    """Remove a band that nobody is in."""
    ctx.confirm(lambda client: _in_figures(client, ctx.args.name))
    result = ctx.client.remove_band(ctx.args.name)
    ctx.done(result, result.message)


def _in_figures(client: AdminClient, name: str) -> str:
    band = next((band for band in client.bands() if band.name == name), None)
    if band is None:
        raise Refused(f"there is no band {name!r}: see llmgw ctl bands list")
    inside = f"{plural(band.keys, 'key')} and {plural(band.teams, 'team')} in it"
    return f"Removes band {band.name}: priority {band.priority}, {inside}."


def of_key(ctx: Context) -> None:
    """Put a key in a band, or in its team's."""
    result = ctx.client.key_band(ctx.args.id, _choice(ctx.args.band))
    ctx.done(result, result.message)


def of_team(ctx: Context) -> None:
    """Put a team's keys in a band."""
    result = ctx.client.team_band(ctx.args.name, _choice(ctx.args.band))
    ctx.done(result, result.message)


def _choice(band: str) -> str | None:
    return None if band == NONE else band


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("bands", "list"): bands,
    ("bands", "set"): change,
    ("bands", "remove"): remove,
    ("keys", "band"): of_key,
    ("teams", "band"): of_team,
}
