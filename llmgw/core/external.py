"""Models served by endpoints outside the cluster: what an entry may say, and what a file of provider's keys may hold.

A line that is no key makes the whole file none: whoever can name files in the catalog must not be able to have another
file of the machine sent to an address of his choice. What a file holds stands in no message.
"""

import re
from urllib.parse import SplitResult, urlsplit

import msgspec

from llmgw.core.errors import InvalidInput

MAX_ENDPOINTS = 16
"""Endpoints of one model."""
MAX_URL_CHARS = 2048
MAX_UPSTREAM_NAME_CHARS = 256
MAX_PATH_CHARS = 4096
MAX_WEIGHT = 1000.0
MAX_KEYS = 256
"""Keys of one file."""
MAX_KEYS_FILE_BYTES = 256 * 1024
"""A longer file is no file of keys."""
_KEY = re.compile(rb"[A-Za-z0-9._~+/=-]{8,512}")
_URL = re.compile(r"[!-~]+")
_ROUTES = ("/chat/completions", "/completions", "/embeddings", "/responses", "/messages")
"""Ends of the URLs that providers show first, and that are copied instead of the base."""
_HOST = re.compile(r"(?=.{1,253}\.?\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
"""A name that a resolver could be asked for, or an IPv6 address without its brackets."""
_ID = "external:"


class External(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint outside the cluster that speaks OpenAI's API."""

    base_url: str
    """`https://host/v1`: what stands before `/chat/completions`."""
    model: str = ""
    """Name it knows the model by; empty is the entry's own."""
    api_keys_file: str = ""
    """Absolute path on the control plane's machine: the provider's keys, one a line, which take turns; none is sent
    when it is empty."""
    ca_file: str = ""
    """Absolute path: authorities to trust instead of the system's, in PEM."""
    weight: float = 1.0
    """Share of the requests it takes, among the model's endpoints."""


def external_id(model: str, number: int) -> str:
    """The name under which routers know the model's endpoint of that number, where replicas have their id."""
    return f"{_ID}{model}:{number}"


def model_of_external(replica_id: str) -> str | None:
    """The model an endpoint's id belongs to; none for the id of a replica."""
    if not replica_id.startswith(_ID):
        return None
    return replica_id[len(_ID) :].rpartition(":")[0] or None


def check_endpoints(endpoints: tuple[External, ...]) -> None:
    """Raise InvalidInput for the first rule one of them breaks. Files are looked at by whoever can see them."""
    if len(endpoints) > MAX_ENDPOINTS:
        raise InvalidInput(f"{len(endpoints)} endpoints are more than {MAX_ENDPOINTS}", field="external")
    for i, endpoint in enumerate(endpoints):
        where = f"external[{i}]"
        check_base_url(endpoint.base_url, field=f"{where}.base_url")
        _check_text(endpoint.model, MAX_UPSTREAM_NAME_CHARS, f"{where}.model")
        _check_path(endpoint.api_keys_file, f"{where}.api_keys_file")
        _check_path(endpoint.ca_file, f"{where}.ca_file")
        if endpoint.ca_file and not endpoint.base_url.startswith("https://"):
            raise InvalidInput("authorities are for https:// endpoints", field=f"{where}.ca_file")
        if not 0 < endpoint.weight <= MAX_WEIGHT:
            raise InvalidInput(f"{endpoint.weight} is outside 0 to {MAX_WEIGHT:g}", field=f"{where}.weight")


def check_base_url(text: str, *, field: str) -> SplitResult:
    """The parts of an `http(s)://host[:port][/path]` and nothing more; raises InvalidInput."""
    shown = f"{text[:80]!r}"
    if len(text) > MAX_URL_CHARS or not _URL.fullmatch(text):
        raise InvalidInput("a base URL is up to 2048 printable ASCII characters without spaces", field=field)
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        raise InvalidInput(f"{shown} is not a URL", field=field) from None
    if not text.startswith(("https://", "http://")) or not host:
        raise InvalidInput(f"{shown} is not https://HOST/PATH (or http:// on your own network)", field=field)
    if "@" in url.netloc:
        # Not shown: what stands before the @ is a password.
        raise InvalidInput("a base URL holds no account or password; keys go into api_keys_file", field=field)
    if "?" in text or "#" in text:
        raise InvalidInput("a base URL has no query and no fragment", field=field)
    if not _HOST.fullmatch(host) or url.netloc.endswith(":"):
        raise InvalidInput(f"{shown} names no host that could be asked", field=field)
    parts = url.path.split("/")
    if any(part in (".", "..") for part in parts) or "//" in url.path or "%" in url.path or "\\" in url.path:
        raise InvalidInput(f"the path in {shown} is not plain", field=field)
    if url.path.rstrip("/").endswith(_ROUTES):
        raise InvalidInput(f"{shown} is one route: a base URL is what stands before /chat/completions", field=field)
    return url


def parse_keys(data: bytes) -> tuple[str, ...]:
    """The keys in a file's content, blank lines and those that begin with # left out; raises InvalidInput.

    The message names a line's number and never what stands in it.
    """
    if len(data) > MAX_KEYS_FILE_BYTES:
        raise InvalidInput(f"it is longer than {MAX_KEYS_FILE_BYTES // 1024} KiB")
    keys: dict[str, None] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.strip(b" \t\r")
        if not text or text.startswith(b"#"):
            continue
        if not _KEY.fullmatch(text):
            raise InvalidInput(f"line {number} is no key: a key is 8 to 512 of letters, digits and . _ ~ + / = -")
        keys[text.decode("ascii")] = None
    if not keys:
        raise InvalidInput("it holds no key")
    if len(keys) > MAX_KEYS:
        raise InvalidInput(f"it holds {len(keys)} keys, more than {MAX_KEYS}")
    return tuple(keys)


def _check_text(text: str, most: int, field: str) -> None:
    if len(text) > most or not text.isprintable():
        raise InvalidInput(f"is not up to {most} printable characters", field=field)


def _check_path(path: str, field: str) -> None:
    if not path:
        return
    _check_text(path, MAX_PATH_CHARS, field)
    if not path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise InvalidInput(f"{path[:80]!r} is not an absolute path", field=field)
