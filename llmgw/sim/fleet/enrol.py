"""Making simulated nodes members of a cluster, many at a time, each as any machine joins: token, key, certificate.

A node's files stay in its directory under the fleet's; one that has joined is not joined again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import trio

from agent.identity import Identity, IdentityError, load_identity
from agent.join import JoinError, join
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError, Unreachable
from llmgw.api.types import JoinTokenCreate
from llmgw.core.errors import LlmgwError
from llmgw.core.layout import AgentLayout
from llmgw.core.units import plural
from llmgw.sim.fleet.roster import NodePlan

log = logging.getLogger("llmgw.sim.fleet")

AT_ONCE = 8
"""Machines that enrol at the same time; the agent port takes twice as many of everybody together."""
TOKEN_MINUTES = 30
RETRY_S = 1.0
"""Pause before a server that is away or busy is asked again."""
TRIES = 120
"""A node that could not join by then ends the fleet, with the last reason."""

Token = tuple[str, str]
"""A join token and the agent port it is for."""


class FleetError(LlmgwError):
    """The fleet cannot come up; the sentence says why and what would help."""

    code = "fleet"


class Tokens:
    """Where join tokens come from: the admin API, or a list that somebody made with `ctl join-token`."""

    def __init__(self, client: AdminClient | None, given: Sequence[Token] = ()) -> None:
        self._client = client
        self._given: Iterator[Token] = iter(given)

    async def next(self) -> Token:
        """A token nobody has used. Raises ClientError, and FleetError when the list is at its end."""
        given = next(self._given, None)
        if given is not None:
            return given
        if self._client is None:
            raise FleetError("there are more nodes to join than tokens: name the admin API with --server, or add some")
        made = await trio.to_thread.run_sync(
            self._client.join_token, JoinTokenCreate(minutes=TOKEN_MINUTES), abandon_on_cancel=True
        )
        return made.token, made.url


def node_layout(data: Path, plan: NodePlan) -> AgentLayout:
    """Where the node's identity is kept."""
    return AgentLayout(data=data / "nodes" / plan.name)


def check_cluster(identity: Identity, cluster_id: str, data: Path) -> None:
    """Raise FleetError for a node of another cluster than the one that is to be joined."""
    if cluster_id and identity.cluster_id != cluster_id:
        raise FleetError(
            f"the nodes under {data} belong to cluster {identity.cluster_id}, the server is of {cluster_id}: "
            "name another directory with --data"
        )


class Enroller:
    """Joins the nodes of a roster that have not joined yet."""

    def __init__(self, data: Path, tokens: Tokens, *, cluster_id: str, say: Callable[[str], None]) -> None:
        self._data = data
        self._tokens = tokens
        self._cluster_id = cluster_id
        self._say = say
        self.joined = 0
        """Nodes that joined in this run."""

    async def run(self, plans: Sequence[NodePlan], members: trio.MemorySendChannel[NodePlan]) -> None:
        """Send every node once it is a member, those that had joined first. Raises FleetError, ClientError."""
        async with members:
            missing = [plan for plan in plans if not self._is_member(plan)]
            gone = {plan.name for plan in missing}
            for plan in plans:
                if plan.name not in gone:
                    await members.send(plan)
            if not missing:
                return
            self._say(f"joining {plural(len(missing), 'simulated node')}")
            queue = iter(missing)
            async with trio.open_nursery() as nursery:
                for _ in range(min(AT_ONCE, len(missing))):
                    nursery.start_soon(self._work, queue, members)
            self._say(f"joined {plural(self.joined, 'simulated node')}")

    def _is_member(self, plan: NodePlan) -> bool:
        layout = node_layout(self._data, plan)
        if not layout.certificate.exists():
            return False
        try:
            check_cluster(load_identity(layout), self._cluster_id, self._data)
        except IdentityError:
            return False  # damaged: joining again is the cure
        return True

    async def _work(self, queue: Iterator[NodePlan], members: trio.MemorySendChannel[NodePlan]) -> None:
        for plan in queue:
            await self._join(plan)
            self.joined += 1
            await members.send(plan)

    async def _join(self, plan: NodePlan) -> None:
        last: LlmgwError | ClientError | None = None
        for _ in range(TRIES):
            try:
                token, url = await self._tokens.next()
                await join(token, url, data=node_layout(self._data, plan).data, name=plan.name)
                return
            except (JoinError, Unreachable) as error:
                last = error
                log.info("%s could not join yet: %s", plan.name, error)
                await trio.sleep(RETRY_S)
        raise FleetError(f"{plan.name} could not join: {last}")
