"""What is derived from the cluster secret. The secret stays on control planes; nodes get only their replicas' keys."""

import base64
import hashlib
import hmac
import secrets

CLUSTER_SECRET_BYTES = 32
_NONCE_BYTES, _SEAL_BYTES = 3, 5
"""Of a replica's id: 16 million of one model on one node, and a seal that is not guessed over a stream that each wrong
guess ends."""


def engine_key(cluster_secret: bytes, replica_id: str) -> str:
    """Key under which a replica's engine answers."""
    return "ek-" + _derive(cluster_secret, "engine", replica_id)


def key_digest(cluster_secret: bytes, api_key: bytes) -> str:
    """What the store and caches know of an API key: hex HMAC-SHA256 under a pepper derived from the secret."""
    pepper = hmac.digest(cluster_secret, b"llmgw/api-key-pepper", hashlib.sha256)
    return hmac.digest(pepper, api_key, hashlib.sha256).hex()


def new_replica_id(cluster_secret: bytes, model: str, node: str) -> str:
    """`smollm2-k3x9q2…`: the model's name as far as it fits an id, something unique, and our seal on model and node.

    Whoever leads knows by the seal what the cluster once ordered where, without having kept it. A replica on several
    nodes has all their names, in their order, for `node` (`shards.seat_of`).
    """
    slug = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in model.lower())[:40].strip("-.")
    return _sealed(cluster_secret, slug or "model", secrets.token_bytes(_NONCE_BYTES), model, node)


def ordered_by_us(cluster_secret: bytes, replica_id: str, model: str, node: str) -> bool:
    """Whether the cluster made this id, for a replica of `model` on `node`."""
    slug, _, tail = replica_id.rpartition("-")
    try:
        nonce = base64.b32decode(tail.upper() + "=" * (-len(tail) % 8))[:_NONCE_BYTES]
    except ValueError:
        return False
    return hmac.compare_digest(
        _sealed(cluster_secret, slug, nonce, model, node).encode(), replica_id.encode("utf-8", "replace")
    )


def _sealed(cluster_secret: bytes, slug: str, nonce: bytes, model: str, node: str) -> str:
    text = b"\0".join((b"llmgw/replica", nonce, slug.encode("utf-8", "replace"), model.encode(), node.encode()))
    seal = hmac.digest(cluster_secret, text, hashlib.sha256)[:_SEAL_BYTES]
    return f"{slug}-{base64.b32encode(nonce + seal).decode().rstrip('=').lower()}"


def mirror_token(cluster_secret: bytes) -> str:
    """Bearer token of the mirror, for clients without a node certificate."""
    return "mt-" + _derive(cluster_secret, "mirror", "")


def _derive(secret: bytes, purpose: str, name: str) -> str:
    return hmac.digest(secret, f"llmgw/{purpose}/{name}".encode(), hashlib.sha256).hex()
