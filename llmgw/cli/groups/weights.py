"""`ctl weights list|fetch|verify|remove|orphans`."""

import time
from datetime import UTC, datetime

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused, Usage
from llmgw.api.types import OrphanInfo, Result, WeightsInfo, WeightsOrphans
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import size, when
from llmgw.core.sources import format_source, parse_source
from llmgw.core.units import plural

POLL_S = 0.5
"""How often --wait looks again: a person notices nothing shorter."""
MAX_NAMES = 5
"""Orphans a question names; further ones are counted."""


def weights(ctx: Context) -> None:
    """Every set on the mirror."""
    answer = ctx.client.weights()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    headers = ["SOURCE", "STATE", "SIZE", "FILES", "REVISION", "MODELS", "MESSAGE"]
    ctx.out.table(headers, [_row(info) for info in answer], empty="the mirror holds no weights")


def _row(info: WeightsInfo) -> list[str]:
    return [
        info.source,
        info.state,
        _size(info),
        str(info.files or "-"),
        info.revision[:12] or "-",
        ",".join(info.models) or "none",
        _checking(info) or info.message or info.verdict,
    ]


def _size(info: WeightsInfo) -> str:
    if info.state == "ready" or not info.total_bytes:
        return size(info.done_bytes)
    return f"{100 * info.done_bytes // info.total_bytes}% of {size(info.total_bytes)}"


def _checking(info: WeightsInfo) -> str:
    """`checking 40% of 195 GB` while a ready set is read back."""
    if not info.phase:
        return ""
    return f"{info.phase} {100 * info.checked_bytes // max(1, info.total_bytes)}% of {size(info.total_bytes)}"


def fetch(ctx: Context) -> None:
    """Have a set brought to the mirror."""
    result = ctx.client.fetch_weights(ctx.args.source)
    ctx.done(result, result.message)


def verify(ctx: Context) -> None:
    """Have a set read back; with --wait the last word is what was found, and a difference is a failure."""
    result = ctx.client.verify_weights(ctx.args.source)
    if not ctx.args.wait:
        ctx.done(result, result.message)
        return
    ctx.out.say(result.message)
    info = _when_checked(ctx, format_source(parse_source(ctx.args.source)))
    if not info.intact:
        raise Refused(f"{info.source}: {info.verdict or 'the check ended without an answer'}")
    ctx.done(info, f"{info.source}: {info.verdict}")


def _when_checked(ctx: Context, source: str) -> WeightsInfo:
    """Follow the check, telling how far it is; raises Refused when the set is gone."""
    said = ""
    while True:
        info = next((info for info in ctx.client.weights() if info.source == source), None)
        if info is None:
            raise Refused(f"{source} was removed from the mirror while it was checked")
        if not info.phase:
            return info
        if (sentence := _checking(info)) != said:
            ctx.out.say(sentence)
            said = sentence
        time.sleep(POLL_S)


def orphans(ctx: Context) -> None:
    """What no model needs, and how much it holds."""
    answer = ctx.client.orphans()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    headers = ["SOURCE", "STATE", "SIZE", "FILES", "FETCHED", "LAST USED"]
    ctx.out.table(
        headers, [_orphan(orphan) for orphan in answer.orphans], empty="no orphans: a model needs every set there is"
    )
    if answer.orphans:
        ctx.out.say(f"{_held(answer)}; `llmgw ctl weights remove --orphans` removes them")


def _orphan(orphan: OrphanInfo) -> list[str]:
    in_place = " (its files stay)" if orphan.in_place else ""
    return [
        orphan.source or orphan.id,
        orphan.state,
        f"{size(orphan.bytes)}{in_place}",
        str(orphan.files or "-"),
        when(_moment(orphan.fetched)),
        when(_moment(orphan.used)) if orphan.used else "never",
    ]


def _moment(unix_s: float | None) -> datetime | None:
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC)


def _held(answer: WeightsOrphans) -> str:
    count = len(answer.orphans)
    return f"{plural(count, 'orphan')} {'holds' if count == 1 else 'hold'} {size(answer.total_bytes)}"


def remove(ctx: Context) -> None:
    """Remove a set that no model needs, or all of them."""
    source = ctx.args.source
    if bool(source) == ctx.args.orphans:
        raise Usage("name one set, SOURCE, or say --orphans for all that no model needs")
    if ctx.args.orphans:
        _remove_orphans(ctx)
        return
    ctx.confirm(lambda client: _in_figures(client, source))
    result = ctx.client.remove_weights(source)
    ctx.done(result, result.message)


def _remove_orphans(ctx: Context) -> None:
    """What was shown is what goes: the ids are sent, and nothing that became an orphan since."""
    answer = ctx.client.orphans()
    if not answer.orphans:
        nothing = Result(message="no orphans: a model needs every set there is")
        ctx.done(nothing, nothing.message)
        return
    ctx.confirm(lambda _client: _all_in_figures(answer))
    result = ctx.client.remove_orphans([orphan.id for orphan in answer.orphans])
    ctx.done(result, result.message)


def _all_in_figures(answer: WeightsOrphans) -> str:
    names = [orphan.source or orphan.id for orphan in answer.orphans]
    listed = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
    stay = sum(orphan.in_place for orphan in answer.orphans)
    in_place = f" The files of {plural(stay, 'set')} lie where an operator put them, and stay." if stay else ""
    return f"Removes {plural(len(names), 'set')}, {size(answer.total_bytes)}, that no model needs: {listed}.{in_place}"


def _in_figures(client: AdminClient, source: str) -> str:
    found = next((info for info in client.weights() if info.source == source), None)
    if found is None:
        return f"Removes {source}, which is not listed."
    what = f"{size(found.done_bytes)} in {found.files} files"
    stays = " The files lie where an operator put them, and stay." if found.in_place else ""
    return f"Removes {source}: {what}, needed by {len(found.models)} models.{stays}"


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("weights", "list"): weights,
    ("weights", "fetch"): fetch,
    ("weights", "verify"): verify,
    ("weights", "remove"): remove,
    ("weights", "orphans"): orphans,
}
