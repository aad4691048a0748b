"""Clients for tests: the official package, a raw stream that says what it saw, and one-shot posts."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.cluster import DemoCluster

TIMEOUT_S = 60.0


@dataclass
class Answer:
    """An HTTP answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def post(cluster: DemoCluster, path: str, body: Any, *, key: str | None = None, method: str = "POST") -> Answer:
    """One request; `body` is sent as it is when it is bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=TIMEOUT_S)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {cluster.key if key is None else key}", "Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def chat_body(model: str, *, tokens: int, stream: bool = False, **more: Any) -> dict[str, Any]:
    """A chat completion request."""
    messages = [{"role": "user", "content": "Count slowly."}]
    return {"model": model, "messages": messages, "max_tokens": tokens, "stream": stream, **more}


@dataclass
class Stream:
    """A streamed answer read in a thread, as it comes."""

    cluster: DemoCluster
    body: dict[str, Any]
    events: list[str] = field(default_factory=list)
    status: int = 0
    error: str = ""
    ended: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> "Stream":
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def wait_for_events(self, count: int, *, within_s: float = 30.0) -> None:
        """Return once that many events came."""
        end = time.monotonic() + within_s
        while len(self.events) < count:
            assert time.monotonic() < end, f"{len(self.events)} events: {self.error or self.status}"
            assert not self.ended, f"ended after {len(self.events)} events: {self.error}"
            time.sleep(0.01)

    def finish(self, *, within_s: float = 60.0) -> "Stream":
        """Wait for the end."""
        assert self._thread is not None
        self._thread.join(within_s)
        assert self.ended, f"not ended within {within_s:.0f} s, {len(self.events)} events"
        return self

    @property
    def tokens(self) -> int:
        """Events that carried text."""
        return sum(1 for event in self.events if event != "[DONE]" and _text(json.loads(event)))

    @property
    def complete(self) -> bool:
        """Whether the answer ended as an answer should, without an error in it."""
        return bool(self.events) and self.events[-1] == "[DONE]" and not any('"error"' in e for e in self.events)

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.cluster.port, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {self.cluster.key}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(self.body), headers)
            response = connection.getresponse()
            self.status = response.status
            for event in _events(response):
                self.events.append(event)
        except (OSError, http.client.HTTPException) as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
            self.ended = True


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    for raw in response:
        line = raw.decode().rstrip("\r\n")
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def _text(event: Any) -> str:
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
