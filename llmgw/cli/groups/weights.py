"""`ctl weights list|fetch|remove`."""

from llmgw.api.client import AdminClient
from llmgw.api.types import WeightsInfo
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import size


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
        info.message,
    ]


def _size(info: WeightsInfo) -> str:
    if info.state == "ready" or not info.total_bytes:
        return size(info.done_bytes)
    return f"{100 * info.done_bytes // info.total_bytes}% of {size(info.total_bytes)}"


def fetch(ctx: Context) -> None:
    """Have a set brought to the mirror."""
    result = ctx.client.fetch_weights(ctx.args.source)
    ctx.done(result, result.message)


def remove(ctx: Context) -> None:
    """Remove a set that no model needs."""
    source = ctx.args.source
    ctx.confirm(lambda client: _in_figures(client, source))
    result = ctx.client.remove_weights(source)
    ctx.done(result, result.message)


def _in_figures(client: AdminClient, source: str) -> str:
    found = next((info for info in client.weights() if info.source == source), None)
    if found is None:
        return f"Removes {source}, which is not listed."
    return f"Removes {source}: {size(found.done_bytes)} in {found.files} files, needed by {len(found.models)} models."


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("weights", "list"): weights,
    ("weights", "fetch"): fetch,
    ("weights", "remove"): remove,
}
