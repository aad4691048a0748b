"""The cluster's settings: every key with its type, bounds, default and a sentence. Nothing else may be set."""

import contextlib
from collections.abc import Callable, Mapping

import msgspec

from llmgw.api.types import Setting
from llmgw.control.history import metrics_store, metrics_token
from llmgw.control.history.metrics_store import StoreSettings
from llmgw.control.weights_pace import KEYS as PACE
from llmgw.control.weights_pace import Pace, check_speed
from llmgw.core import seen_rules
from llmgw.core.admission import Admission, read_bands
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.near import near
from llmgw.core.requests import Seen
from llmgw.core.routing import Scoring, Timeouts
from llmgw.core.units import MIB

_MAX_TIMEOUT_S = 86_400.0
_MAX_MARGIN = 10_000.0
_MAX_HELD = 64 * 1024 * MIB
BANDS = "router.bands"
"""Where all bands are stored; set by `ctl bands`, not here."""


_WORDS: Mapping[type, str] = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
}


class SettingKind(msgspec.Struct, frozen=True, kw_only=True):
    """One key's definition."""

    key: str
    type: type
    default: float | int | bool | str
    doc: str
    check: Callable[[float], str] | None = None
    """Sentence about what is wrong with a value of the right type, or nothing."""
    check_text: Callable[[str], str] | None = None
    """Likewise, of a text."""


def _seconds(low: float) -> Callable[[float], str]:
    def check(value: float) -> str:
        return "" if low <= value <= _MAX_TIMEOUT_S else f"{value} s is outside {low} to {_MAX_TIMEOUT_S:.0f} s"

    return check


def _admission(name: str, doc: str, low: float, high: float) -> SettingKind:
    def check(value: float) -> str:
        return "" if low <= value <= high else f"{value:g} is outside {low:g} to {high:g}"

    default = getattr(Admission(), name)
    return SettingKind(key=f"router.admission.{name}", type=type(default), default=default, doc=doc, check=check)


def _timeout(name: str, doc: str, low: float = 0.1) -> SettingKind:
    default = getattr(Timeouts(), name)
    return SettingKind(key=f"router.timeouts.{name}", type=float, default=default, doc=doc, check=_seconds(low))


def _requests(value: float) -> str:
    return "" if 0 <= value <= _MAX_MARGIN else f"{value:g} requests are outside 0 to {_MAX_MARGIN:g}"


def _scoring(name: str, doc: str, check: Callable[[float], str] | None = None) -> SettingKind:
    default = getattr(Scoring(), name)
    return SettingKind(key=f"router.scoring.{name}", type=type(default), default=default, doc=doc, check=check)


SEEN = {
    "log": "router.request_log.keep",
    "log_bytes": "router.request_log.bytes",
    "log_files": "router.request_log.files",
    "endpoint": "router.telemetry.endpoint",
    "headers_file": "router.telemetry.headers_file",
    "sample": "router.telemetry.sample",
}
"""Field of `Seen` → its key."""


def _seen(
    name: str,
    doc: str,
    check: Callable[[float], str] | None = None,
    check_text: Callable[[str], str] | None = None,
) -> SettingKind:
    default = getattr(Seen(), name)
    return SettingKind(key=SEEN[name], type=type(default), default=default, doc=doc, check=check, check_text=check_text)


def _pace(name: str, doc: str) -> SettingKind:
    return SettingKind(key=PACE[name], type=float, default=0.0, doc=doc, check=check_speed)


KINDS: Mapping[str, SettingKind] = {
    kind.key: kind
    for kind in (
        _timeout("connect", "Seconds a connection to an engine may take."),
        _timeout("first_byte", "Seconds an engine may take to the first byte of its answer."),
        _timeout("inter_token", "Seconds an engine may be silent within an answer."),
        _timeout("total", "Seconds a whole request may take.", 1.0),
        _timeout("client_stall", "Seconds a client may read nothing before it is cut and its slot freed.", 1.0),
        _timeout("queue", "Seconds a request may wait for a replica, if its band says nothing else."),
        _admission(
            "waiting_per_replica", "Requests in an engine's own queue at which it counts as fully loaded.", 1, 10_000
        ),
        _admission("kv_ceiling", "Share of its KV cache in use at which an engine counts as fully loaded.", 0.05, 1),
        _admission("saturation", "Mean load of a model's replicas from which on further requests wait.", 0.05, 1),
        _admission("max_waiting", "Requests that may wait in one router.", 0, 1_000_000),
        _admission("max_waiting_bytes", "Bytes of waiting requests' bodies that one router may hold.", 0, _MAX_HELD),
        _scoring("load", "Whether the load of replicas counts; without it they take turns."),
        _scoring("sticky", "Whether a session goes to the replica it was at before."),
        _scoring("prefix", "Whether a prompt goes to a replica that has lately read its beginning."),
        _scoring(
            "load_margin",
            "Requests more than the least loaded replica has that one may have which is chosen for session or prefix.",
            _requests,
        ),
        _seen(
            "log",
            "Which requests routers write down: `all`, those that `failed`, or `off`.",
            check_text=seen_rules.check_log,
        ),
        _seen("log_bytes", "Bytes at which a file of the request log is put aside.", seen_rules.check_bytes),
        _seen(
            "log_files",
            "Files of it kept of each router, the one being written among them.",
            seen_rules.check_files,
        ),
        _seen(
            "endpoint",
            "Where spans of requests go (OTLP over HTTP), `http://HOST:4318/v1/traces`; empty traces nothing.",
            check_text=seen_rules.check_endpoint,
        ),
        _seen(
            "headers_file",
            "File on the routers' machines with headers for that, `name: value` a line; empty sends none.",
            check_text=seen_rules.check_headers_file,
        ),
        _seen(
            "sample",
            "Share of requests traced, 0 to 1, where the client does not say whether it traces.",
            seen_rules.check_sample,
        ),
        _pace("download_mb_s", "MB (10**6 bytes) a second that the mirror takes from outside at most; 0 is no limit."),
        _pace("serve_mb_s", "MB a second that the mirror gives to all nodes together at most; 0 is no limit."),
        SettingKind(
            key="monitor.prometheus.url",
            type=str,
            default="",
            doc="Where charts of more than 24 h are read from, `http://HOST:9090`; empty is nowhere.",
            check_text=metrics_store.check_url,
        ),
        SettingKind(
            key=metrics_token.SETTING,
            type=str,
            default="",
            doc="File on the servers with a bearer token for it, on its first line; empty sends none.",
            check_text=metrics_token.check_token_file,
        ),
    )
}


def decode(key: str, raw: bytes) -> float | int | bool | str:
    """The checked value of JSON `raw` for `key`; raises NotFound for an unknown key, InvalidInput for a bad value."""
    kind = kind_of(key)
    try:
        value: float | int | bool | str = msgspec.json.decode(raw, type=kind.type)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        shown = raw[:80].decode(errors="replace")
        usual = msgspec.json.encode(kind.default).decode()
        raise InvalidInput(f"{shown} is not {_WORDS[kind.type]}; the default is {usual}", field=key) from error
    if kind.check is not None and isinstance(value, int | float):
        wrong = kind.check(value)
        if wrong:
            raise InvalidInput(wrong, field=key)
    if kind.check_text is not None and isinstance(value, str) and (wrong := kind.check_text(value)):
        raise InvalidInput(wrong, field=key)
    return value


def kind_of(key: str) -> SettingKind:
    """The definition of `key`; raises NotFound naming near keys."""
    kind = KINDS.get(key)
    if kind is None:
        same_end = [k for k in KINDS if k.rpartition(".")[2] == key.rpartition(".")[2]]
        meant = (*same_end, *near(key, KINDS))[:1]
        hint = f" (did you mean {meant[0]}?)" if meant else ""
        raise NotFound(f"there is no setting {key!r}; `llmgw ctl config list` shows them{hint}")
    return kind


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


def scoring(stored: Mapping[str, bytes]) -> Scoring:
    """How routers choose under the stored settings; a stored value that no longer fits its key is the default."""
    values: dict[str, float | int | bool | str] = {}
    for name in Scoring.__struct_fields__:
        key = f"router.scoring.{name}"
        raw = stored.get(key)
        if raw is not None:
            with contextlib.suppress(InvalidInput):
                values[name] = decode(key, raw)
    return msgspec.convert(values, Scoring)


def admission(stored: Mapping[str, bytes]) -> Admission:
    """Who waits under the stored settings; a value that no longer fits is the default."""
    values: dict[str, float | int | bool | str] = {}
    for name in Admission.__struct_fields__:
        raw = stored.get(f"router.admission.{name}")
        if raw is not None:
            with contextlib.suppress(InvalidInput):
                values[name] = decode(f"router.admission.{name}", raw)
    rules = msgspec.convert(values, Admission)
    return msgspec.structs.replace(rules, bands=read_bands(stored.get(BANDS, b"{}")))


def seen(stored: Mapping[str, bytes]) -> Seen:
    """What routers write down and trace under the stored settings; a value that no longer fits is the default."""
    values: dict[str, float | int | bool | str] = {}
    for name, key in SEEN.items():
        raw = stored.get(key)
        if raw is not None:
            with contextlib.suppress(InvalidInput):
                values[name] = decode(key, raw)
    return msgspec.convert(values, Seen)


def pace(stored: Mapping[str, bytes]) -> Pace:
    """How fast weights may move under the stored settings; a value that no longer fits is the default."""
    values: dict[str, float] = {}
    for name, key in PACE.items():
        raw = stored.get(key)
        if raw is not None:
            with contextlib.suppress(InvalidInput):
                values[name] = float(decode(key, raw))
    return Pace(**values)


def metrics_store_of(stored: Mapping[str, bytes]) -> StoreSettings:
    """Where the operator's metrics store is; a stored value that no longer fits its key is the default."""
    values: dict[str, str] = {}
    for name in StoreSettings._fields:
        key = f"monitor.prometheus.{name}"
        raw = stored.get(key)
        if raw is not None:
            with contextlib.suppress(InvalidInput):
                values[name] = str(decode(key, raw))
    return StoreSettings(**values)
