"""Machines: who may join, who has joined, who takes new replicas. Who is admitted is answered from memory, at once."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from llmgw.agents.enrol import Enrolment
from llmgw.api.types import JoinToken, JoinTokenCreate, NodeInfo, Result
from llmgw.control import views
from llmgw.control.builds import BuildService
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.pki import NODE_LIFE, Authority
from llmgw.control.reconciler import Reconciler
from llmgw.control.sentences import staying
from llmgw.core.errors import Conflict, InvalidInput, NotAllowed, NotFound
from llmgw.core.near import did_you_mean
from llmgw.store import nodes as stored_nodes
from llmgw.store import tokens as stored_tokens
from llmgw.store.nodes import NodeRow
from llmgw.wire.llmgw.v1 import EnrollResponse

MAX_TOKEN_MINUTES = 24 * 60
RENEW_PAUSE = timedelta(minutes=5)
"""A node is renewed no oftener. It asks every ten minutes until it holds what it was given."""


class NodeService:
    """Enrolment and what operators do with nodes."""

    def __init__(
        self,
        *,
        leadership: Leadership,
        inventory: Inventory,
        reconciler: Reconciler,
        builds: BuildService,
        authority: Authority,
        agents_url: Callable[[], str],
        mirror_url: Callable[[], str],
    ) -> None:
        self._leadership = leadership
        self._inventory = inventory
        self._reconciler = reconciler
        self._builds = builds
        self._agents_url = agents_url
        self._serials: dict[str, str] = {}
        self._ends: dict[str, datetime] = {}
        self.enrolment = Enrolment(
            authority=authority,
            create=self._create_token,
            consume=self._consume_token,
            issued=self._issued,
            renewed=self._renewed,
            servers=lambda: [agents_url()],
            mirror_url=mirror_url,
        )

    def replace(self, rows: Iterable[NodeRow]) -> None:
        """The nodes as the store has them now."""
        living = [row for row in rows if row.evicted is None]
        self._serials = {row.name: row.serial for row in living}
        self._ends = {row.name: row.renewed + NODE_LIFE for row in living}
        self._builds.replace(living)
        self._inventory.expect((row.name, row.cordoned) for row in living)

    def allowed(self, node: str, serial: str) -> bool:
        """Whether this certificate is the node's current one."""
        return self._serials.get(node) == serial

    @property
    def certificate_ends(self) -> Mapping[str, datetime]:
        """When each node's certificate ends, by the node's name."""
        return self._ends

    async def renew(self, node: str, serial: str, csr_pem: bytes) -> EnrollResponse:
        """A new life for a node's certificate; raises Conflict when it has just had one.

        When to ask is the node's to know: an answer may be lost, and then what the store says of its end is too late.
        """
        end = self._ends.get(node)
        if end is not None and end - datetime.now(UTC) > NODE_LIFE - RENEW_PAUSE:
            raise Conflict(f"the certificate of {node} was renewed just now: ask again in a few minutes")
        return await self.enrolment.renew(node, serial, csr_pem)

    def list(self) -> tuple[NodeInfo, ...]:
        """Every node."""
        return views.node_infos(self._reconciler.snapshot(), self._inventory)

    def show(self, name: str) -> NodeInfo:
        """One node."""
        found = next((info for info in self.list() if info.name == name), None)
        if found is None:
            have = ", ".join(n.name for n in self.list()[:8]) or "none yet; `llmgw ctl join-token` adds one"
            hint = did_you_mean(name, [info.name for info in self.list()]) or f"; nodes: {have}"
            raise NotFound(f"there is no node {name!r}{hint}")
        return found

    async def cordon(self, name: str, on: bool, *, actor: str) -> Result:
        """Keep new replicas off a node, or allow them again."""
        before = self.show(name)
        await self._leadership.lead(stored_nodes.set_cordoned, name, on, actor=actor)
        self._inventory.cordon(name, on)
        held = sum(1 for r in self._inventory.replicas() if name in r.holding)
        if (before.state == "cordoned") == on:
            return Result(message=f"{name} is {'cordoned' if on else 'open'} already")
        if on:
            return Result(message=f"{name} cordoned: nothing new is placed there, {staying(held)}")
        return Result(message=f"{name} open: replicas may be placed there again")

    async def join_token(self, request: JoinTokenCreate, *, actor: str) -> JoinToken:
        """A token with which one node may enrol, once."""
        if not 1 <= request.minutes <= MAX_TOKEN_MINUTES:
            raise InvalidInput(f"{request.minutes} is outside 1 to {MAX_TOKEN_MINUTES}", field="minutes")
        token, expires = await self.enrolment.new_token(by=actor, valid_s=request.minutes * 60.0)
        url = self._agents_url()
        return JoinToken(token=token, url=url, command=f"llmgw agent join {token} {url}", expires=expires)

    async def _create_token(self, digest: str, ttl_s: float, by: str) -> datetime:
        return await self._leadership.lead(stored_tokens.create_token, digest=digest, ttl_s=ttl_s, actor=by)

    async def _consume_token(self, digest: str, node: str) -> None:
        if self._inventory.is_connected(node):
            # Two machines often have one host name; the second must not put the first out of the cluster.
            raise NotAllowed(
                f"a node called {node!r} is connected: join this machine as another one with --name; to give that "
                "node a new certificate, stop its agent first"
            )
        await self._leadership.lead(stored_tokens.consume_token, digest=digest, node=node)

    async def _issued(self, node: str, serial: str, fingerprint: str) -> None:
        await self._leadership.lead(
            stored_nodes.upsert_node, name=node, fingerprint=fingerprint, serial=serial, actor=f"node:{node}"
        )
        self._serials[node] = serial
        self._ends[node] = datetime.now(UTC) + NODE_LIFE

    async def _renewed(self, node: str, serial: str, fingerprint: str) -> None:
        await self._leadership.lead(
            stored_nodes.renew_node, name=node, fingerprint=fingerprint, serial=serial, actor=f"node:{node}"
        )
        self._ends[node] = datetime.now(UTC) + NODE_LIFE
