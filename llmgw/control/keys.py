"""API keys: 256 random bits, shown once, kept as a digest. A revoked key is refused as soon as routers hear."""

import secrets
from collections.abc import Sequence

from llmgw.api.types import KeyCreate, KeyCreated, KeyInfo, Result
from llmgw.control.feed import FeedServer
from llmgw.control.leadership import Leadership
from llmgw.core.catalog import NAME_PATTERN
from llmgw.core.errors import InvalidInput
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.core.secrets import key_digest
from llmgw.store import keys as stored_keys
from llmgw.store import usage as stored_usage
from llmgw.store.store import Store

KEY_BYTES = 32
MAX_NAME_CHARS = 128


class KeyService:
    """Keys for operators, and the two things routers ask of the store."""

    def __init__(self, *, store: Store, leadership: Leadership, feed: FeedServer, cluster_secret: bytes) -> None:
        self._store = store
        self._leadership = leadership
        self._feed = feed
        self._secret = cluster_secret

    async def list(self) -> tuple[KeyInfo, ...]:
        """Every key, revoked ones too."""
        rows = await self._store.run(stored_keys.list_keys)
        return tuple(
            KeyInfo(
                id=row.id,
                name=row.name,
                models=row.models,
                created=row.created,
                revoked=row.revoked,
                last_used=row.last_used,
                requests=row.requests,
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
            )
            for row in rows
        )

    async def create(self, request: KeyCreate, *, actor: str) -> KeyCreated:
        """Make a key; the answer is the only place where it is shown."""
        if not request.name.strip() or len(request.name) > MAX_NAME_CHARS or not request.name.isprintable():
            raise InvalidInput(f"a key's name has 1 to {MAX_NAME_CHARS} printable characters", field="name")
        for model in request.models or ():
            if not NAME_PATTERN.fullmatch(model):
                raise InvalidInput(f"{model[:140]!r} is not a model's name", field="models")
        key = "sk-" + secrets.token_urlsafe(KEY_BYTES)
        key_id = "key-" + secrets.token_hex(6)
        await self._leadership.lead(
            stored_keys.create_key,
            id=key_id,
            name=request.name,
            digest=key_digest(self._secret, key.encode()),
            models=request.models,
            actor=actor,
        )
        return KeyCreated(id=key_id, name=request.name, key=key)

    async def revoke(self, key_id: str, *, actor: str) -> Result:
        """Refuse a key from now on."""
        digest = await self._leadership.lead(stored_keys.revoke_key, key_id, actor=actor)
        self._feed.key_changed(digest)
        routers = len(self._feed.routers())
        return Result(message=f"{key_id} revoked: {routers} of {routers} routers here were told and refuse it now")

    async def changed(self, key_id: str) -> None:
        """Another server changed the key: tell the routers here."""
        digest = await self._store.run(stored_keys.digest_of, key_id)
        if digest is not None:
            self._feed.key_changed(digest)

    async def lookup(self, digest: str) -> KeyRecord | None:
        """Whose key this is, for a router."""
        return await self._store.run(stored_keys.key_by_digest, digest)

    async def store_usage(self, rows: Sequence[UsageRow]) -> None:
        """Keep what routers counted; any server may."""
        await self._store.run(stored_usage.store_batch, rows)
