"""The data plane: one process that authenticates, chooses, relays and counts. A follower of the feed."""

from llmgw.router.compiled import status

_native, _ = status()
if _native is not None:
    __path__.insert(0, str(_native))
