"""A broad `except` stands at a supervised border, and every border is listed here with its reason."""

import ast
from collections import Counter

from tests.architecture.test_imports import sources

BROAD = ("Exception", "BaseException", "BaseExceptionGroup", "ExceptionGroup")

BORDERS: dict[str, tuple[int, str]] = {
    "agent/engine_checks.py": (1, "what an adapter did not foresee of a foreign engine ends no agent"),
    "agent/join.py": (1, "a parser fed by the network: whatever it raises, it is no certificate of ours"),
    "agent/link.py": (1, "whatever ended a session, the next attempt is the answer"),
    "agent/link_rpc.py": (2, "grpclib and h2 raise what they like; an error is carried out of the asyncio loop"),
    "agent/renewal.py": (1, "whatever went wrong, the certificate before is good and is shown again"),
    "agent/shard.py": (1, "one shard's trouble is nobody else's"),
    "agent/weights/cache.py": (1, "a failed fetch is its waiters' failure, not the cache's"),
    "llmgw/agents/bridge.py": (1, "h2 and the transport raise many kinds when a peer goes away"),
    "llmgw/agents/bridge_h2.py": (1, "frames nobody foresaw end one connection, not the loop"),
    "llmgw/agents/frames.py": (1, "one node's call must not reach the others' streams"),
    "llmgw/control/feed.py": (1, "one key's look-up"),
    "llmgw/control/pki.py": (2, "certificates and requests of strangers in a parser that raises what it likes"),
    "llmgw/control/reconciler.py": (1, "an entry that cannot be decided on must not end the server that could mend it"),
    "llmgw/control/sessions.py": (1, "no words of one node end the control plane for all"),
    "llmgw/control/server.py": (1, "the process tree's end becomes one sentence and an exit code"),
    "llmgw/control/usage_intake.py": (1, "usage that is kept until it is stored"),
    "llmgw/core/wire_limits.py": (1, "the decoder raises a dozen kinds for one fact: malformed"),
    "llmgw/mirror/server.py": (1, "one request's failure"),
    "llmgw/mirror/service.py": (2, "one set's failure, as it is fetched or read back"),
    "llmgw/router/process.py": (1, "the last border of the process: the log gets whatever ended it"),
    "llmgw/router/reactor.py": (2, "one stream's fault must not end the others"),
    "llmgw/router/seen.py": (1, "what is only written down must not end what serves"),
    "llmgw/router/service.py": (1, "one connection's fault must not end the others"),
    "llmgw/sim/fleet/main.py": (1, "the first error of a group is raised in its place"),
    "llmgw/store/store.py": (1, "the outcome of a worker thread passes on in the calling task"),
    "llmgw/web/serve.py": (1, "one connection's trouble must not end the others"),
    "llmgw/transfer/parallel.py": (1, "failures of parallel ranges are gathered, and the first is raised"),
}
"""File → how many broad handlers it may hold, and why. Handlers that only clean up and raise again are not counted."""


def reraises(handler: ast.ExceptHandler) -> bool:
    """Whether the handler's last statement raises whatever came."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything, by name or for want of one."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(type_, ast.Name) and type_.id in BROAD for type_ in types)


def test_broad_handlers_are_at_the_listed_borders() -> None:
    found = Counter(
        name
        for name, tree in sources()
        if not name.startswith("llmgw/wire/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and is_broad(node) and not reraises(node)
    )
    assert dict(found) == {name: count for name, (count, _) in BORDERS.items()}


def test_the_scan_tells_them_apart() -> None:
    bodies = ("except Exception: pass", "except (OSError, BaseException): pass", "except: raise")
    text = "".join(f"try: pass\n{body}\n" for body in bodies)
    handlers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    assert [is_broad(handler) and not reraises(handler) for handler in handlers] == [True, True, False]
