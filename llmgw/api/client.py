"""The admin API's synchronous client, on the standard library. Every failure is a `ClientError` with a sentence.

Answers are bounded and decoded into the API's own types; fields a newer server adds are ignored.
"""

import contextlib
import http.client
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from llmgw.api import types as t
from llmgw.api.actions import Action, action
from llmgw.api.band_client import BandCalls
from llmgw.api.calls import Query, T
from llmgw.api.connections import TcpConnection, UnixConnection
from llmgw.api.key_client import KeyCalls
from llmgw.api.paths import PROBLEM_TYPE, fill, with_query
from llmgw.api.problems import Denied, Refused, Unreachable, Usage, error_of
from llmgw.api.request_client import RequestCalls
from llmgw.api.series import SeriesAnswer
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import MAX_LINE_BYTES as MAX_MESSAGE_BYTES
from llmgw.api.watch import History, Message, Subscription
from llmgw.api.weights_client import WeightsCalls
from llmgw.core.catalog import Model

DEFAULT_TIMEOUT_S = 60.0
"""Longest silence while waiting for an answer: longer than a server itself waits for its database, so that its own
sentence arrives."""
CHECK_TIMEOUT_S = 330.0
"""A check of engines waits for its nodes for 300 s."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Status of 10,000 replicas is about 5 MB; more than this is no answer of ours."""
MAX_LINE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024


class AdminClient(KeyCalls, BandCalls, RequestCalls, WeightsCalls):
    """One server's admin API. A connection a request; not shared between threads."""

    def __init__(self, target: ServerTarget, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.target = target
        self._timeout_s = timeout_s

    # -- what runs

    def status(self) -> t.ClusterStatus:
        """All that runs."""
        return self._call("cluster.status", t.ClusterStatus)

    def nodes(self) -> list[t.NodeInfo]:
        """Every node."""
        return self._call("node.list", list[t.NodeInfo])

    def node(self, node: str) -> t.NodeInfo:
        """One node."""
        return self._call("node.show", t.NodeInfo, {"node": node})

    def check_engines(self, *, engine: str | None = None, node: str | None = None) -> list[t.EngineVerdict]:
        """Have nodes ask their engines whether they take every flag; takes as long as the slowest needs."""
        query: Query = {"engine": engine, "node": node}
        patient = AdminClient(self.target, timeout_s=CHECK_TIMEOUT_S)
        return patient._call("engine.check", list[t.EngineVerdict], query=query)

    def node_builds(self, node: str) -> list[t.BuildInfo]:
        """Engines a node may have installed."""
        return self._call("node.builds", list[t.BuildInfo], {"node": node})

    def ask_build(self, node: str, engine: str, version: str) -> t.Result:
        """Have a node install a version of an engine; `none` and `auto` are versions too."""
        body = t.BuildRequest(engine=engine, version=version)
        return self._call("node.build", t.Result, {"node": node}, body=body)

    def cordon(self, node: str, on: bool) -> t.Result:
        """Cordon a node, or uncordon it."""
        return self._call("node.cordon" if on else "node.uncordon", t.Result, {"node": node})

    def sample(self, node: str) -> t.Result:
        """Ask a node for a fresh sample, which comes with the feed."""
        return self._call("node.sample", t.Result, {"node": node})

    # -- models and replicas

    def models(self) -> list[t.ModelInfo]:
        """The catalog."""
        return self._call("model.list", list[t.ModelInfo])

    def model(self, name: str) -> t.ModelInfo:
        """One catalog entry."""
        return self._call("model.show", t.ModelInfo, {"name": name})

    def serve(self, request: t.ServeRequest) -> t.ModelResult:
        """Serve a model from its source."""
        return self._call("model.serve", t.ModelResult, body=request)

    def add(self, model: Model, *, replace: bool = False) -> t.ModelResult:
        """Add a whole catalog entry."""
        return self._call("model.add", t.ModelResult, body=t.ModelAdd(model=model, replace=replace))

    def remove(self, name: str, *, purge: bool = False) -> t.Result:
        """Take a model out of the catalog."""
        return self._call("model.remove", t.Result, {"name": name}, {"purge": purge})

    def stop(self, name: str) -> t.ModelResult:
        """End a model's replicas."""
        return self._call("model.stop", t.ModelResult, {"name": name})

    def start(self, name: str) -> t.ModelResult:
        """Serve a stopped model again."""
        return self._call("model.start", t.ModelResult, {"name": name})

    def scale(self, name: str, minimum: int, maximum: int) -> t.ModelResult:
        """Set how many replicas are kept."""
        return self._call("model.scale", t.ModelResult, {"name": name}, body=t.ScaleRequest(min=minimum, max=maximum))

    def set_fallbacks(self, name: str, fallbacks: Sequence[str]) -> t.ModelResult:
        """Say which models answer while this one cannot."""
        body = t.FallbacksChange(fallbacks=tuple(fallbacks))
        return self._call("model.fallbacks", t.ModelResult, {"name": name}, body=body)

    def replicas(self, model: str | None = None) -> list[t.ReplicaInfo]:
        """Every replica, or one model's."""
        return self._call("replica.list", list[t.ReplicaInfo], query={"model": model})

    def restart(self, target: str) -> t.Result:
        """Restart a model's replicas or one replica."""
        return self._call("replica.restart", t.Result, body=t.RestartRequest(target=target))

    def explain(self, name: str) -> t.Explanation:
        """Why a model is where it is."""
        return self._call("model.explain", t.Explanation, {"name": name})

    def explain_serve(self, request: t.ServeRequest) -> t.Explanation:
        """Where a model would be placed."""
        return self._call("model.explain-serve", t.Explanation, body=request)

    # -- settings, audit

    def join_token(self, request: t.JoinTokenCreate) -> t.JoinToken:
        """Make a join token."""
        return self._call("node.join-token", t.JoinToken, body=request)

    def settings(self) -> list[t.Setting]:
        """Every cluster setting."""
        return self._call("setting.list", list[t.Setting])

    def setting(self, key: str) -> t.Setting:
        """One cluster setting."""
        return self._call("setting.get", t.Setting, {"key": key})

    def set_setting(self, key: str, value: msgspec.Raw) -> t.Result:
        """Change a setting; `value` is JSON."""
        return self._call("setting.set", t.Result, {"key": key}, body=t.SettingChange(value=value))

    def audit(self, since: datetime | None = None, limit: int | None = None) -> list[t.AuditEntry]:
        """Who changed what, newest first; `since` is an aware time."""
        query: Query = {"since": since.isoformat() if since else None, "limit": limit}
        return self._call("audit.list", list[t.AuditEntry], query=query)

    def history(self, model: str | None = None) -> History:
        """Traffic of the last quarter of an hour: a model's, or all."""
        return self._call("cluster.history", History, query={"model": model})

    def series(
        self,
        figures: Sequence[str],
        of: Sequence[str] = ("cluster",),
        *,
        start: float | None = None,
        end: float | None = None,
        step_s: float | None = None,
    ) -> SeriesAnswer:
        """Figures over time; `start` and `end` are Unix seconds, the last hour by default."""
        query: Query = {"figure": ",".join(figures), "of": ",".join(of)}
        if start is not None:
            query = {**query, "from": f"{start:.3f}"}
        if end is not None:
            query = {**query, "to": f"{end:.3f}"}
        if step_s is not None:
            query = {**query, "step": f"{step_s:g}"}
        return self._call("cluster.series", SeriesAnswer, query=query)

    def watch(self, subscription: Subscription | None = None) -> Generator[Message, None, None]:
        """The live feed as it comes, without end; raises Unreachable when it breaks off or falls silent.

        Close the iterator to end it.
        """
        route = action("cluster.watch")
        path = with_query(route.path, (subscription or Subscription()).query())
        decoder = msgspec.json.Decoder(Message)
        with self._open(route.method, path, None, timeout_s=self._timeout_s) as answer:
            for line in self._split(answer, MAX_MESSAGE_BYTES):
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise Refused(f"{self.target} sent something that is no message of the feed: {error}") from error

    def logs(self, target: str, *, tail: int | None = None, follow: bool = False) -> Generator[str, None, None]:
        """Lines as they come, without their newline; close the iterator to end it."""
        route = action("cluster.logs")
        path = with_query(fill(route.path, {"target": target}), {"tail": tail, "follow": follow or None})
        with self._open(route.method, path, None, timeout_s=None if follow else self._timeout_s) as answer:
            yield from self._lines(answer)

    # -- the wire

    def _call(
        self,
        action_id: str,
        type_: type[T],
        params: Mapping[str, str] | None = None,
        query: Query | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        route: Action = action(action_id)
        if nameless := [name for name, value in (params or {}).items() if not value]:
            raise Usage(f"{nameless[0]} is empty: give one")
        path = with_query(fill(route.path, params or {}), query)
        data = None if body is None else msgspec.json.encode(body)
        with self._open(route.method, path, data, timeout_s=self._timeout_s) as answer:
            content = self._read(answer)
        try:
            return msgspec.json.decode(content, type=type_)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Refused(f"{self.target} answered something that is not {action_id}'s document: {error}") from error

    @contextlib.contextmanager
    def _open(
        self, method: str, path: str, body: bytes | None, *, timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.target.token is not None:
            headers["Authorization"] = f"Bearer {self.target.token}"
        try:
            try:
                connection.request(method, path, body=body, headers=headers)
                answer = connection.getresponse()
            except PermissionError as error:
                raise Denied(f"{self.target} is not yours to open: {error.strerror}") from error
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
            if answer.status >= 300:
                raise self._refusal(answer)
            if timeout_s is None and connection.sock is not None:
                connection.sock.settimeout(None)
            yield answer
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        target = self.target
        if target.socket is not None:
            return UnixConnection(target.socket, self._timeout_s)
        if target.https:
            return http.client.HTTPSConnection(target.host, target.port, timeout=self._timeout_s)
        return TcpConnection(target.host, target.port, self._timeout_s)

    def _refusal(self, answer: http.client.HTTPResponse) -> Exception:
        content = self._read(answer)
        if answer.headers.get_content_type() == PROBLEM_TYPE:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                return error_of(msgspec.json.decode(content, type=t.Problem))
        return Refused(f"{self.target} answered {answer.status} {answer.reason}; is it llmgw's admin API?")

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            content = answer.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if len(content) > MAX_ANSWER_BYTES:
            raise Refused(f"{self.target} answered more than {MAX_ANSWER_BYTES} bytes")
        return content

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[str]:
        return (line.decode(errors="replace") for line in self._split(answer, MAX_LINE_BYTES))

    def _split(self, answer: http.client.HTTPResponse, limit: int) -> Iterator[bytes]:
        # `readline` of a chunked answer takes a cut connection for its end; `read1` raises.
        rest = bytearray()
        while True:
            try:
                data = answer.read1(READ_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
            head, newline, tail = data.rpartition(b"\n")
            lines: list[bytes] = []
            if newline:
                # Only what is new is searched: a snapshot is one line of megabytes.
                lines = bytes(rest + head).split(b"\n")
                rest = bytearray(tail)
            else:
                rest += tail
            if len(rest) > limit or (rest and not data):
                lines, rest = [*lines, bytes(rest)], bytearray()
            yield from lines
            if not data:
                return

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, FileNotFoundError):
            return Unreachable(f"{self.target} is not there: no server runs, or it keeps its data elsewhere")
        if isinstance(error, ConnectionRefusedError):
            return Unreachable(f"nothing listens at {self.target}: the server is down")
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self.target} did not answer within {self._timeout_s:g} s")
        if isinstance(error, http.client.IncompleteRead | http.client.RemoteDisconnected):
            return Unreachable(f"{self.target} broke off before its answer was whole")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"cannot reach {self.target}: {reason}")
