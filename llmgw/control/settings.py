"""The cluster's settings: every key with its type, bounds, default and a sentence. Nothing else may be set."""

from collections.abc import Callable, Mapping

import msgspec

from llmgw.api.types import Setting
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.routing import Timeouts

_MAX_TIMEOUT_S = 86_400.0


class SettingKind(msgspec.Struct, frozen=True, kw_only=True):
    """One key's definition."""

    key: str
    type: type
    default: float | int | bool | str
    doc: str
    check: Callable[[float], str] | None = None
    """Sentence about what is wrong with a value of the right type, or nothing."""


def _seconds(low: float) -> Callable[[float], str]:
    def check(value: float) -> str:
        return "" if low <= value <= _MAX_TIMEOUT_S else f"{value} s is outside {low} to {_MAX_TIMEOUT_S:.0f} s"

    return check


def _timeout(name: str, doc: str, low: float = 0.1) -> SettingKind:
    default = getattr(Timeouts(), name)
    return SettingKind(key=f"router.timeouts.{name}", type=float, default=default, doc=doc, check=_seconds(low))


KINDS: Mapping[str, SettingKind] = {
    kind.key: kind
    for kind in (
        _timeout("connect", "Seconds a connection to an engine may take."),
        _timeout("first_byte", "Seconds an engine may take to the first byte of its answer."),
        _timeout("inter_token", "Seconds an engine may be silent within an answer."),
        _timeout("total", "Seconds a whole request may take.", 1.0),
        _timeout("client_stall", "Seconds a client may read nothing before it is cut and its slot freed.", 1.0),
        _timeout("queue", "Seconds a request may wait for a replica."),
    )
}


def decode(key: str, raw: bytes) -> float | int | bool | str:
    """The checked value of JSON `raw` for `key`; raises NotFound for an unknown key, InvalidInput for a bad value."""
    kind = kind_of(key)
    try:
        value: float | int | bool | str = msgspec.json.decode(raw, type=kind.type)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{raw[:80].decode(errors='replace')} is not a {kind.type.__name__}", field=key) from error
    if kind.check is not None and isinstance(value, int | float):
        wrong = kind.check(value)
        if wrong:
            raise InvalidInput(wrong, field=key)
    return value


def kind_of(key: str) -> SettingKind:
    """The definition of `key`; raises NotFound naming near keys."""
    kind = KINDS.get(key)
    if kind is None:
        near = [k for k in KINDS if k.rpartition(".")[2] == key.rpartition(".")[2]]
        raise NotFound(f"there is no setting {key!r}; `llmgw ctl config list` shows them" + _or(near))
    return kind


def _or(near: list[str]) -> str:
    return f" (did you mean {near[0]}?)" if near else ""


def document(key: str, stored: Mapping[str, bytes]) -> Setting:
    """The setting as the admin API shows it."""
    kind = kind_of(key)
    default = msgspec.json.encode(kind.default)
    return Setting(key=key, value=msgspec.Raw(stored.get(key, default)), default=msgspec.Raw(default), doc=kind.doc)


def timeouts(stored: Mapping[str, bytes]) -> Timeouts:
    """The routers' timeouts under the stored settings; a stored value that no longer fits its key is the default."""
    values: dict[str, float] = {}
    for name in Timeouts.__struct_fields__:
        raw = stored.get(f"router.timeouts.{name}")
        if raw is None:
            continue
        try:
            values[name] = float(decode(f"router.timeouts.{name}", raw))
        except InvalidInput:
            continue
    return Timeouts(**values)
