"""Join tokens: known by their digest alone, used once, valid by the database's clock."""

from datetime import datetime

import msgspec

from llmgw.core.errors import InvalidInput, Unauthenticated
from llmgw.store import audit
from llmgw.store.sql import Conn, execute, fetch_one, load

MAX_TTL_S = 7 * 24 * 3600.0
"""A token that lies about for longer is a risk nobody remembers."""
KEPT_S = 30 * 24 * 3600.0
"""How long after its end a token is still told apart from one that never was."""

_SQL = load("tokens")


class _Created(msgspec.Struct, frozen=True, kw_only=True):
    expires: datetime


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    expires: datetime
    used: datetime | None
    node: str | None


def create_token(conn: Conn, *, digest: str, ttl_s: float, actor: str) -> datetime:
    """Keep a token's digest for `ttl_s` seconds (at most MAX_TTL_S); answers when it expires."""
    if not 0 < ttl_s <= MAX_TTL_S:
        raise InvalidInput(f"{ttl_s:g} s is outside 1 to {MAX_TTL_S:.0f} s", field="ttl_s")
    execute(conn, _SQL["forget_old_tokens"], {"age_s": KEPT_S})
    row = fetch_one(conn, _SQL["create_token"], _Created, {"digest": digest, "ttl_s": ttl_s, "actor": actor})
    if row is None:
        raise InvalidInput("the token was not stored")
    # The digest would let a reader of the audit recognise the token; when it ends is enough.
    audit.record(conn, actor=actor, action="token.create", target="join-token", after=row)
    return row.expires


def consume_token(conn: Conn, *, digest: str, node: str) -> None:
    """Use the token up for `node`; of several at once exactly one succeeds.

    Raises Unauthenticated, saying whether the token is unknown, used or expired. Only its holder can ask.
    """
    if execute(conn, _SQL["consume_token"], {"digest": digest, "node": node}) == 1:
        audit.record(conn, actor=f"node:{node}", action="token.use", target="join-token", after={"node": node})
        return
    token = fetch_one(conn, _SQL["describe_token"], _Token, {"digest": digest})
    hint = "make a new one with: llmgw ctl join-token"
    if token is None:
        raise Unauthenticated(f"this join token is not known here; {hint}")
    if token.used is not None:
        raise Unauthenticated(f"this join token was used by {token.node!r} already; {hint}")
    raise Unauthenticated(f"this join token expired at {token.expires:%Y-%m-%d %H:%M} UTC; {hint}")
