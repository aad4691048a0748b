"""Logs of simulated engines and agents: the last lines of each, in memory, and who follows them. Bounded both ways."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from llmgw.wire.llmgw.v1 import AgentMessage, LogLines, LogRequest

KEPT_LINES = 200
"""Lines kept of each log."""
MAX_FOLLOWERS = 32
"""Followers of one node's logs at once; one more is refused."""
AGENT = ""
"""The agent's own log, as a request names it."""

Send = Callable[[AgentMessage], None]


class LogBook:
    """All logs of one node, by shard id."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lines: dict[str, deque[str]] = {AGENT: deque(maxlen=KEPT_LINES)}
        self._followers: dict[str, str] = {}
        """Request id → shard id."""

    def write(self, shard_id: str, text: str) -> None:
        """Add a line, and send it to whoever follows."""
        line = f"{datetime.now(UTC):%H:%M:%S} {text}"
        self._lines.setdefault(shard_id, deque(maxlen=KEPT_LINES)).append(line)
        for request_id, followed in self._followers.items():
            if followed == shard_id:
                self._send(AgentMessage(log_lines=LogLines(request_id=request_id, lines=[line])))

    def forget(self, shard_id: str) -> None:
        """The shard is gone, and its followers hear so."""
        self._lines.pop(shard_id, None)
        for request_id in [r for r, followed in self._followers.items() if followed == shard_id]:
            self.cancel(request_id)
            self._send(AgentMessage(log_lines=LogLines(request_id=request_id, end=True)))

    def answer(self, order: LogRequest) -> None:
        """Send the last lines; go on sending while it is followed."""
        lines = self._lines.get(order.shard_id)
        if lines is None:
            self._refuse(order.request_id, f"there is no output of shard {order.shard_id!r} on this node")
            return
        if order.follow and len(self._followers) >= MAX_FOLLOWERS:
            self._refuse(order.request_id, f"{MAX_FOLLOWERS} logs are being read already")
            return
        tail = list(lines)[-order.tail_lines :] if order.tail_lines else []
        if order.follow:
            self._followers[order.request_id] = order.shard_id
        answer = LogLines(request_id=order.request_id, lines=tail, end=not order.follow)
        self._send(AgentMessage(log_lines=answer))

    def cancel(self, request_id: str) -> None:
        """Nobody follows it any more; unknown ones are nothing to cancel."""
        self._followers.pop(request_id, None)

    def cancel_all(self) -> None:
        """Whoever followed is on another connection now."""
        self._followers.clear()

    def _refuse(self, request_id: str, why: str) -> None:
        self._send(AgentMessage(log_lines=LogLines(request_id=request_id, end=True, error=why)))
