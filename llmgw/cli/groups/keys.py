"""`ctl keys list|create|revoke`."""

from llmgw.api.client import AdminClient
from llmgw.api.types import KeyCreate, KeyInfo
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import when


def keys(ctx: Context) -> None:
    """Every key, without the key."""
    answer = ctx.client.keys()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    headers = ["ID", "NAME", "MODELS", "STATE", "LAST USED", "REQUESTS", "INPUT", "OUTPUT"]
    ctx.out.table(headers, [_row(key) for key in answer], empty="there is no key: `llmgw ctl keys create NAME`")


def _row(key: KeyInfo) -> list[str]:
    return [
        key.id,
        key.name,
        "all" if key.models is None else ",".join(key.models),
        "in force" if key.revoked is None else f"revoked {when(key.revoked)}",
        when(key.last_used),
        str(key.requests),
        str(key.input_tokens),
        str(key.output_tokens),
    ]


def create(ctx: Context) -> None:
    """Make a key; stdout gets the key and nothing else."""
    given = ctx.args.models
    models = (
        None if given is None else tuple(part.strip() for text in given for part in text.split(",") if part.strip())
    )
    created = ctx.client.create_key(KeyCreate(name=ctx.args.name, models=models))
    if ctx.out.json:
        ctx.out.document(created)
        return
    ctx.out.line(created.key)
    ctx.out.say(f"This is key {created.id} of {created.name}. It is not shown again.")


def revoke(ctx: Context) -> None:
    """Refuse a key from now on."""
    key_id = ctx.args.id
    ctx.confirm(lambda client: _in_figures(client, key_id))
    result = ctx.client.revoke_key(key_id)
    ctx.done(result, result.message)


def _in_figures(client: AdminClient, key_id: str) -> str:
    listed = client.keys()
    found = next((key for key in listed if key.id == key_id), None)
    if found is None:
        return f"Revokes key {key_id}, which is not listed."
    return (
        f"Revokes key {found.id} of {found.name}, last used {when(found.last_used)}, {found.requests} requests so far."
    )


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("keys", "list"): keys,
    ("keys", "create"): create,
    ("keys", "revoke"): revoke,
}
