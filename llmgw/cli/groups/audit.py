"""`ctl audit`: who changed what."""

from datetime import UTC, datetime, timedelta

import msgspec

from llmgw.api.audit_words import target_called
from llmgw.api.problems import Usage
from llmgw.api.types import AuditEntry
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import when
from llmgw.cli.spans import seconds_of


def audit(ctx: Context) -> None:
    """Entries, newest first."""
    since = None if ctx.args.since is None else parse_since(ctx.args.since, now=datetime.now(UTC))
    answer = ctx.client.audit(since, ctx.args.limit)
    if ctx.out.json:
        ctx.out.document(answer)
        return
    rows = [[when(entry.at), entry.actor, entry.action, target_called(entry), _change(entry)] for entry in answer]
    ctx.out.table(["UTC", "ACTOR", "ACTION", "TARGET", "CHANGE"], rows, empty="nothing was changed in that time")


def parse_since(text: str, *, now: datetime) -> datetime:
    """`1h` before `now`, or an ISO time, local without an offset; raises Usage."""
    seconds = seconds_of(text)
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Usage(f"--since {text[:40]!r} is neither like 30m, 12h, 7d nor an ISO time") from None


def _change(entry: AuditEntry) -> str:
    """What differs, `key: before → after`, for documents; both whole for anything else."""
    before, after = entry.before, entry.after
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        return ", ".join(f"{key}: {_json(before.get(key))} → {_json(after.get(key))}" for key in keys)
    if before is None:
        return "" if after is None else f"new {_json(after)}"
    return f"{_json(before)} → {'gone' if after is None else _json(after)}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


HANDLERS: dict[tuple[str, ...], Handler] = {("audit",): audit}
