"""What the settings of the request log and of traces may be; each check gives a sentence, or nothing."""

from urllib.parse import urlsplit

from llmgw.core.requests import LOG_MODES

KIB = 1024
LEAST_BYTES, MOST_BYTES = 64 * KIB, 4 * KIB * KIB * KIB
MOST_FILES = 100


def check_log(value: str) -> str:
    """Which requests are written down."""
    return "" if value in LOG_MODES else f"{value[:40]!r} is not one of {', '.join(LOG_MODES)}"


def check_bytes(value: float) -> str:
    """How long a file of the log gets."""
    if LEAST_BYTES <= value <= MOST_BYTES:
        return ""
    return f"{value:g} bytes are outside {LEAST_BYTES} (64 KiB) to {MOST_BYTES} (4 GiB)"


def check_files(value: float) -> str:
    """How many are kept."""
    return "" if 1 <= value <= MOST_FILES else f"{value:g} files are outside 1 to {MOST_FILES}"


def check_sample(value: float) -> str:
    """The share of requests that are traced."""
    return "" if 0 <= value <= 1 else f"{value:g} is no share: write 0 to 1"


def check_endpoint(value: str) -> str:
    """Where spans go."""
    if not value:
        return ""
    shown = repr(value[:80])
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        return f"{shown} is no URL"
    if url.scheme not in ("http", "https") or not url.hostname or port == 0 or not value.isprintable() or " " in value:
        return f"{shown} is not http://HOST:4318/v1/traces or https://HOST/PATH"
    if url.username is not None or url.password is not None:
        return "an account in the URL would be shown with the settings: write a header in router.telemetry.headers_file"
    if url.fragment or not value.isascii():
        return f"{shown} holds what no request carries: no fragment, and ASCII alone"
    return ""


def check_headers_file(value: str) -> str:
    """Where the headers for that are; the file is each router's own to read."""
    if not value or (value.startswith("/") and value.isprintable() and len(value) <= 4096):
        return ""
    return f"{value[:80]!r} is not a path from the root, such as /etc/llmgw/collector.headers"
