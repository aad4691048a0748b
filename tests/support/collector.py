"""A collector of spans on loopback that decodes what it is sent as OTLP/HTTP has it in JSON, strictly."""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TRACE = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class SpanSeen:
    """One span as it came."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    began_ns: int
    ended_ns: int
    error: bool
    attributes: dict[str, object]
    resource: dict[str, object]


@dataclass
class Collector:
    """What was received; `answer` is its status, and `hold` keeps it from answering while it is not set."""

    port: int
    spans: list[SpanSeen] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    """Headers of each, names in lower case."""
    paths: list[str] = field(default_factory=list)
    answer: int = 200
    hold: threading.Event = field(default_factory=threading.Event)
    _server: ThreadingHTTPServer | None = None

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def close(self) -> None:
        """Serve no more."""
        self.hold.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def collector() -> Collector:
    """One that listens; `close` it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take an export."""
            body = self.rfile.read(int(self.headers["content-length"]))
            found.paths.append(self.path)
            found.requests.append({name.lower(): value for name, value in self.headers.items()})
            found.hold.wait(60)
            if found.answer == 200:
                found.spans.extend(decode(json.loads(body)))
            self.send_response(found.answer)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(port=server.server_port, _server=server)
    found.hold.set()
    threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
    return found


def decode(export: dict[str, object]) -> list[SpanSeen]:
    """The spans of an ExportTraceServiceRequest; raises AssertionError for what no collector would take."""
    spans: list[SpanSeen] = []
    for resource_spans in _list(export, "resourceSpans"):
        resource = _attributes(_dict(resource_spans, "resource"))
        for scope_spans in _list(resource_spans, "scopeSpans"):
            for span in _list(scope_spans, "spans"):
                spans.append(_span(span, resource))
    return spans


def _span(span: dict[str, object], resource: dict[str, object]) -> SpanSeen:
    trace, own, parent = str(span["traceId"]), str(span["spanId"]), str(span.get("parentSpanId", ""))
    assert _TRACE.fullmatch(trace), span
    assert _SPAN.fullmatch(own), span
    assert not parent or _SPAN.fullmatch(parent), span
    began, ended = span["startTimeUnixNano"], span["endTimeUnixNano"]
    assert isinstance(began, str), "64-bit numbers travel as strings"
    assert isinstance(ended, str)
    kind = span["kind"]
    assert isinstance(kind, int)
    assert 1 <= kind <= 5
    status = span.get("status", {})
    assert isinstance(status, dict)
    return SpanSeen(
        trace=trace,
        id=own,
        parent=parent,
        name=str(span["name"]),
        kind=kind,
        began_ns=int(began),
        ended_ns=int(ended),
        error=status.get("code", 0) == 2,
        attributes=_attributes(span),
        resource=resource,
    )


def _attributes(holder: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for attribute in _list(holder, "attributes"):
        value = _dict(attribute, "value")
        ((kind, content),) = value.items()
        if kind == "intValue":
            assert isinstance(content, str)
            content = int(content)
        assert kind in ("stringValue", "intValue", "doubleValue", "boolValue"), kind
        key = str(attribute["key"])
        assert key not in found, f"{key} comes twice"
        found[key] = content
    return found


def _list(holder: dict[str, object], key: str) -> list[dict[str, object]]:
    found = holder[key]
    assert isinstance(found, list)
    return found


def _dict(holder: dict[str, object], key: str) -> dict[str, object]:
    found = holder[key]
    assert isinstance(found, dict)
    return found
