"""`ctl config list|get|set|reference`: the cluster's settings."""

import msgspec

from llmgw.cli.context import Context, Handler


def settings(ctx: Context) -> None:
    """Every setting, a line each."""
    answer = ctx.client.settings()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    rows = [[s.key, _text(s.value), "" if s.value == s.default else f"default {_text(s.default)}"] for s in answer]
    ctx.out.table(["KEY", "VALUE", ""], rows, empty="there is no setting")


def get(ctx: Context) -> None:
    """One setting's value, as JSON."""
    setting = ctx.client.setting(ctx.args.key)
    if ctx.out.json:
        ctx.out.document(setting)
    else:
        ctx.out.line(_text(setting.value))


def change(ctx: Context) -> None:
    """Change a setting."""
    result = ctx.client.set_setting(ctx.args.key, json_value(ctx.args.value))
    ctx.done(result, result.message)


def json_value(text: str) -> msgspec.Raw:
    """`text` as JSON when it is JSON, else as the text it is: `30`, `true`, `["a"]`, `plain words`."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(text))
    return msgspec.Raw(text.encode())


def reference(ctx: Context) -> None:
    """What every setting means."""
    answer = ctx.client.settings()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    for i, setting in enumerate(answer):
        if i:
            ctx.out.gap()
        ctx.out.line(f"{setting.key}  (default {_text(setting.default)})")
        ctx.out.line(f"    {setting.doc}")


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("config", "list"): settings,
    ("config", "get"): get,
    ("config", "set"): change,
    ("config", "reference"): reference,
}
