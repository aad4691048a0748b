"""What is derived from the cluster secret. The secret stays on control planes; nodes get only their replicas' keys."""

import hashlib
import hmac

CLUSTER_SECRET_BYTES = 32


def engine_key(cluster_secret: bytes, replica_id: str) -> str:
    """Key under which a replica's engine answers."""
    return "ek-" + _derive(cluster_secret, "engine", replica_id)


def key_digest(cluster_secret: bytes, api_key: bytes) -> str:
    """What the store and caches know of an API key: hex HMAC-SHA256 under a pepper derived from the secret."""
    pepper = hmac.digest(cluster_secret, b"llmgw/api-key-pepper", hashlib.sha256)
    return hmac.digest(pepper, api_key, hashlib.sha256).hex()


def mirror_token(cluster_secret: bytes) -> str:
    """Bearer token of the mirror, for clients without a node certificate."""
    return "mt-" + _derive(cluster_secret, "mirror", "")


def _derive(secret: bytes, purpose: str, name: str) -> str:
    return hmac.digest(secret, f"llmgw/{purpose}/{name}".encode(), hashlib.sha256).hex()
