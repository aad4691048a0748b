"""API keys: 256 random bits, shown once, kept as a digest. A change is told to the routers here before it is answered.

A router that was told asks again when the key is next used, so what it then does is what the store holds.
"""

import secrets
from collections.abc import Sequence
from datetime import date

import msgspec

from llmgw.api.types import KeyCreate, KeyCreated, KeyInfo, LimitsChange, Result, UsageInfo
from llmgw.control.feed import FeedServer
from llmgw.control.leadership import Leadership
from llmgw.control.limit_words import budget_sentence, changed_limits, limits_sentence
from llmgw.control.scopes import ScopeService, checked
from llmgw.core.catalog import NAME_PATTERN
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import check_scope_name
from llmgw.core.limits import Budget
from llmgw.core.money import check_budgets, in_order
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.core.secrets import key_digest
from llmgw.store import keys as stored_keys
from llmgw.store import usage as stored_usage
from llmgw.store.store import Store

KEY_BYTES = 32
MAX_NAME_CHARS = 128


class KeyService:
    """Keys for operators, and the two things routers ask of the store."""

    def __init__(
        self,
        *,
        store: Store,
        leadership: Leadership,
        feed: FeedServer,
        scopes: ScopeService,
        cluster_secret: bytes,
    ) -> None:
        self._store = store
        self._leadership = leadership
        self._feed = feed
        self._scopes = scopes
        self._secret = cluster_secret

    async def list(self) -> tuple[KeyInfo, ...]:
        """Every key, revoked ones too."""
        return tuple(key_info(row) for row in await self._store.run(stored_keys.list_keys))

    async def create(self, request: KeyCreate, *, actor: str) -> KeyCreated:
        """Make a key; the answer is the only place where it is shown."""
        if not request.name.strip() or len(request.name) > MAX_NAME_CHARS or not request.name.isprintable():
            raise InvalidInput(f"a key's name has 1 to {MAX_NAME_CHARS} printable characters", field="name")
        for model in request.models or ():
            if not NAME_PATTERN.fullmatch(model):
                raise InvalidInput(f"{model[:140]!r} is not a model's name", field="models")
        if request.team is not None:
            check_scope_name(request.team, field="team")
        limits, budgets = checked(request.limits, request.budgets)
        key = "sk-" + secrets.token_urlsafe(KEY_BYTES)
        new = stored_keys.NewKey(
            id="key-" + secrets.token_hex(6),
            name=request.name,
            digest=key_digest(self._secret, key.encode()),
            models=request.models,
            team=request.team,
            limits=limits,
            budgets=budgets,
            band=request.band,
        )
        team_created = await self._leadership.lead(stored_keys.create_key, new, actor=actor)
        if team_created:
            await self._scopes.tell(self._scopes.reload)
        return KeyCreated(
            id=new.id,
            name=new.name,
            key=key,
            team=new.team,
            team_created=team_created,
            limits=limits,
            budgets=budgets,
        )

    async def revoke(self, key_id: str, *, actor: str) -> Result:
        """Refuse a key from now on."""
        key = await self._leadership.lead(stored_keys.revoke_key, key_id, actor=actor)
        self._feed.key_changed(key.digest)
        return Result(message=f"{key.called} revoked: {self._feed.told()} and refuse it now")

    async def set_limits(self, key_id: str, change: LimitsChange, *, actor: str) -> Result:
        """Change the limits given."""
        given = changed_limits(change)
        before, after = await self._leadership.lead(stored_keys.set_limits, key_id, given, actor=actor)
        return self._changed(after, limits_sentence(after.called, before.limits, after.limits))

    async def set_budgets(self, key_id: str, budgets: tuple[Budget, ...], *, actor: str) -> Result:
        """Set all budgets."""
        check_budgets(budgets)
        before, after = await self._leadership.lead(stored_keys.set_budgets, key_id, in_order(budgets), actor=actor)
        return self._changed(after, budget_sentence(after.called, before.budgets, after.budgets))

    async def move(self, key_id: str, team: str | None, *, actor: str) -> Result:
        """Put a key under a team, or under none."""
        before, after = await self._leadership.lead(stored_keys.move_key, key_id, team, actor=actor)
        if before.team == after.team:
            return Result(message=f"{after.called} is under {_team(after.team)} already")
        return self._changed(after, f"{after.called}: {_team(before.team)} → {_team(after.team)}")

    def _changed(self, key: stored_keys.Key, sentence: str) -> Result:
        self._feed.key_changed(key.digest)
        return Result(message=f"{sentence}; {self._feed.told()}")

    async def changed(self, key_id: str) -> None:
        """Another server changed the key: tell the routers here."""
        digest = await self._store.run(stored_keys.digest_of, key_id)
        if digest is not None:
            self._feed.key_changed(digest)

    async def lookup(self, digest: str) -> KeyRecord | None:
        """Whose key this is, for a router, which has heard of the key's team when it gets the answer."""
        record = await self._store.run(stored_keys.key_by_digest, digest)
        if record is not None and not self._scopes.knows(record.team):
            await self._scopes.reload()
        return record

    async def store_usage(self, rows: Sequence[UsageRow]) -> None:
        """Keep what routers counted; any server may."""
        await self._store.run(stored_usage.store_batch, rows)
        self._scopes.used(rows)

    async def usage(self, by: stored_usage.By, since: date | None, until: date | None) -> tuple[UsageInfo, ...]:
        """Sums of usage, both days included."""
        rows = await self._store.run(stored_usage.totals, by=by, since=since, until=until)
        return tuple(msgspec.convert(row, UsageInfo, from_attributes=True) for row in rows)


def key_info(row: stored_keys.KeyRow) -> KeyInfo:
    """A key as the admin API shows it."""
    return msgspec.convert(row, KeyInfo, from_attributes=True)


def _team(name: str | None) -> str:
    return f"team {name}" if name else "no team"
