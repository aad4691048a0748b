"""The cluster the pictures are of: 12 machines of 8 cards with a model in every state, and the same on a bad day.

Nothing is drawn by chance and no clock is read, so that the same picture comes out every time.
"""

import math

import msgspec

from console.state.store import Link, Store
from llmgw.api.watch import AuditRow, ClusterRow, Delta, ModelRow, NodeRow, ReplicaRow, Snapshot, TrafficRow, WeightsRow
from tests.console import showcase_keys, showcase_machines, showcase_models
from tests.console.showcase_names import BREAKER_OPEN, HOSTILE_MODEL, HOSTILE_NODE, MODEL
from tests.support.fleet_rows import NOW, Rows, cluster_row, delta, model_row, node_row, snapshot

STEP_S = 2.0
STEPS = 450
"""A quarter of an hour of samples."""
FIGURES_EVERY = 5
"""Cards report every so many steps."""


def rows() -> dict[str, dict[str, msgspec.Struct]]:
    """A normal day."""
    nodes = showcase_machines.nodes()
    return {
        "cluster": {
            "cluster": msgspec.structs.replace(
                cluster_row(), client_url="http://gpu01.lab:8080", problems=(BREAKER_OPEN,)
            )
        },
        "models": dict(showcase_models.models()),
        "replicas": dict(showcase_models.replicas()),
        "nodes": dict(nodes),
        "figures": {name: showcase_machines.figures(node, 1.0) for name, node in nodes.items()},
        "traffic": dict(showcase_models.traffic(1.0)),
        "weights": dict(showcase_models.weights()),
        "keys": dict(showcase_keys.keys()),
        "scopes": dict(showcase_keys.scopes()),
        "audit": dict(_audit()),
    }


def _audit() -> dict[str, AuditRow]:
    scaling = {"scaling": {"min": 2, "max": 4}, "stopped": False}
    made = (
        AuditRow(
            id=214,
            at=NOW - 95,
            actor="unix:anna",
            action="model.add",
            target="glm-5.2",
            after={"name": "glm-5.2", "source": "hf:org/glm-5.2", "profiles": [{"name": "main", "tp": 8}]},
        ),
        AuditRow(
            id=213,
            at=NOW - 1_240,
            actor="unix:anna",
            action="model.scale",
            target=MODEL,
            before=scaling,
            after={"scaling": {"min": 4, "max": 4}, "stopped": False},
        ),
        AuditRow(
            id=212,
            at=NOW - 3_020,
            actor="token:ops",
            action="node.cordon",
            target="gpu11",
            before={"cordoned": False},
            after={"cordoned": True},
        ),
        AuditRow(
            id=211,
            at=NOW - 86_000,
            actor="token:ops",
            action="key.create",
            target="notebook-anna",
            after={"name": "notebook-anna", "models": [MODEL]},
        ),
        AuditRow(
            id=210,
            at=NOW - 91_000,
            actor="unix:ops",
            action="model.stop",
            target="mixtral-8x22b",
            before={"stopped": False},
            after={"stopped": True},
        ),
    )
    return {str(row.id): row for row in made}


def bad_rows() -> dict[str, dict[str, msgspec.Struct]]:
    """The same cluster without a leader, half of it gone, cards worn, some names out to do harm."""
    found = rows()
    head = found["cluster"]["cluster"]
    assert isinstance(head, ClusterRow)
    problems = (
        "no control plane leads: nothing is placed, started or stopped until one does",
        "the database answers after 4.1 s",
        "the certificate of gpu03 ends in 2 days",
    )
    found["cluster"] = {"cluster": msgspec.structs.replace(head, leader=None, problems=problems)}
    for number, name in enumerate(found["nodes"]):
        node = found["nodes"][name]
        assert isinstance(node, NodeRow)
        state = ("lost", "silent", "connected")[number % 3]
        problem = "Xid 79: the card has fallen off the bus"
        cards = tuple(
            msgspec.structs.replace(card, healthy=card.index != 3, problem=problem if card.index == 3 else "")
            for card in node.cards
        )
        found["nodes"][name] = msgspec.structs.replace(node, state=state, cards=cards)
    found["nodes"][HOSTILE_NODE] = node_row(HOSTILE_NODE, 2, worn=(0,), problems=("\x1b[2J[@click=app.quit]x[/]",))
    message = 'reply [1, "3" then [b + z \u202e漢字'
    found["models"][HOSTILE_MODEL] = model_row(HOSTILE_MODEL, "failed", ready=0, message=message)
    for name, model in found["models"].items():
        assert isinstance(model, ModelRow)
        if model.state == "ready":
            found["models"][name] = msgspec.structs.replace(model, state="partial", ready=max(0, model.ready - 2))
    for id_, replica in list(found["replicas"].items())[::3]:
        assert isinstance(replica, ReplicaRow)
        failed = "CUDA error: an illegal memory access was encountered"
        found["replicas"][id_] = msgspec.structs.replace(replica, state="failed", message=failed, restarts=3)
    for source, weights in found["weights"].items():
        assert isinstance(weights, WeightsRow)
        full = "no space left on the mirror: 73 GB are missing"
        found["weights"][source] = msgspec.structs.replace(weights, state="failed", message=full)
    for name, traffic in found["traffic"].items():
        assert isinstance(traffic, TrafficRow)
        failing = min(9.5, traffic.requests_per_s / 2)
        found["traffic"][name] = msgspec.structs.replace(traffic, errors_per_s=failing)
    return found


def day(last: Rows) -> list[Snapshot | Delta]:
    """A quarter of an hour that ends with `last` at NOW, traffic and cards in gentle waves."""
    nodes = {name: node for name, node in last["nodes"].items() if isinstance(node, NodeRow)}
    messages: list[Snapshot | Delta] = [snapshot(last, now=NOW - STEP_S * (STEPS + 1))]
    for step in range(STEPS):
        wave = 1 + 0.3 * math.sin(step / 31) + 0.12 * math.sin(step / 7) + 0.05 * math.sin(step * 1.9)
        changed: dict[str, dict[str, msgspec.Struct]] = {"traffic": dict(showcase_models.traffic(wave))}
        if step % FIGURES_EVERY == 0:
            changed["figures"] = {name: showcase_machines.figures(node, wave) for name, node in nodes.items()}
        messages.append(delta(changed, rev=2 + step, now=NOW - STEP_S * (STEPS - step)))
    return [*messages, delta({"figures": last["figures"], "traffic": last["traffic"]}, rev=2 + STEPS, now=NOW)]


def live_store(last: Rows) -> Store:
    """A store that heard `day(last)`."""
    store = Store()
    for message in day(last):
        store.receive(message, at=message.now)
    store.set_link(Link(state="live", since=NOW - 900, latency_s=0.002))
    return store


LOG = tuple(
    line.encode()
    for line in (
        "llama-server: version b6900 on CUDA 12.8, 2 devices",
        "load_model: loading /srv/llmgw/weights/w3/Q4_K_M.gguf",
        *(f"load_tensors: layer {layer:2d} assigned to device CUDA{layer % 2}" for layer in range(0, 48, 3)),
        "llama_context: n_ctx = 131072, n_seq_max = 4, kv cache 12.9 GiB",
        "warn: the chat template of the file is used; --jinja is on",
        "srv  init: listening on 127.0.0.1:9001, 4 slots",
        "slot 2: prompt eval 1842 tokens in 411 ms, 4482 tokens/s",
        "slot 2: eval 512 tokens in 6120 ms, 83.7 tokens/s",
        "error: slot 0: client closed the connection after 118 tokens",
        "markup [/] and [@click=app.quit]quit[/] stay text; so does \x1b[31mred",
        "slot 1: prompt eval 96 tokens in 31 ms, 3097 tokens/s",
    )
)
