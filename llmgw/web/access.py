"""Who asks, and what they may do. Nobody is anybody until the kernel or a token says so; no header names an actor."""

import hmac
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.api.actions import Permission
from llmgw.core.config import AdminToken
from llmgw.core.errors import InvalidInput, NotAllowed, Unauthenticated
from llmgw.web.serve import Peer

MIN_TOKEN_CHARS = 16
MAX_TOKEN_BYTES = 4096
OWN_TOKEN = "admin"
"""Name in the audit of whoever used the server's own token file."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Someone whose identity is proven."""

    actor: str
    """`unix:ACCOUNT` or `token:NAME`; what the audit records."""
    permission: Permission


@dataclass(frozen=True, kw_only=True)
class Token:
    """A bearer token and its holder."""

    name: str
    permission: Permission
    secret: bytes


class Access:
    """Decides who a peer is. Fixed for the life of the server."""

    def __init__(self, *, tokens: Sequence[Token] = (), users: Mapping[str, str] | None = None) -> None:
        self._tokens = tuple(tokens)
        self._users = {name: permission_of(role) for name, role in (users or {}).items()}

    def identify(self, peer: Peer, authorization: str | None) -> Caller:
        """The caller behind `peer`; raises Unauthenticated or NotAllowed."""
        if peer.uid is not None:
            return self._account(peer.uid)
        if authorization is None:
            raise Unauthenticated("a bearer token is needed here: send `Authorization: Bearer TOKEN`")
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Unauthenticated("the Authorization header is not `Bearer TOKEN`")
        return self._holder(given.encode("latin-1", "replace"))

    def _account(self, uid: int) -> Caller:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        if uid in (0, os.geteuid()):
            return Caller(actor=f"unix:{name}", permission=Permission.ADMIN)
        if name not in self._users:
            raise NotAllowed(f"account {name} has no role here; an administrator gives it one with admin_users")
        return Caller(actor=f"unix:{name}", permission=self._users[name])

    def _holder(self, given: bytes) -> Caller:
        found: Token | None = None
        for token in self._tokens:
            # Every token is compared: the time taken says nothing about which one was close.
            if hmac.compare_digest(token.secret, given):
                found = token
        if found is None:
            raise Unauthenticated("the bearer token is not known here")
        return Caller(actor=f"token:{found.name}", permission=found.permission)


def permission_of(role: str) -> Permission:
    """The permission a role's name stands for; raises KeyError."""
    return Permission[role.upper()]


def load_tokens(own: Path | None, further: Sequence[AdminToken] = ()) -> list[Token]:
    """The server's own token (role admin) and the configured ones; raises InvalidInput naming the file."""
    tokens = [] if own is None else [Token(name=OWN_TOKEN, permission=Permission.ADMIN, secret=_read(own))]
    for token in further:
        if token.name == OWN_TOKEN:
            raise InvalidInput(f"the name {OWN_TOKEN!r} is the server's own token's", field="admin_tokens")
        secret = _read(Path(token.token_file))
        tokens.append(Token(name=token.name, permission=permission_of(token.role), secret=secret))
    if len({token.secret for token in tokens}) != len(tokens):
        raise InvalidInput("two token files hold the same token", field="admin_tokens")
    return tokens


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read(MAX_TOKEN_BYTES).splitlines()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", field=str(path)) from error
    secret = lines[0].strip() if lines else b""
    if mode & 0o077:
        raise InvalidInput(f"can be read by others (mode {mode & 0o777:04o}); make it 0600", field=str(path))
    if len(secret) < MIN_TOKEN_CHARS or not secret.isascii() or b" " in secret:
        raise InvalidInput(f"its first line is not a token of {MIN_TOKEN_CHARS} characters at least", field=str(path))
    return secret
