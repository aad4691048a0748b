"""Handlers of ctl's verbs, one file a group."""

from llmgw.cli.context import Handler
from llmgw.cli.groups import (
    audit,
    cluster,
    keys,
    logs,
    models,
    nodes,
    replicas,
    scopes,
    settings,
    usage,
    watch,
    weights,
)

HANDLERS: dict[tuple[str, ...], Handler] = {
    **cluster.HANDLERS,
    **nodes.HANDLERS,
    **models.HANDLERS,
    **replicas.HANDLERS,
    **keys.HANDLERS,
    **scopes.HANDLERS,
    **usage.HANDLERS,
    **logs.HANDLERS,
    **settings.HANDLERS,
    **audit.HANDLERS,
    **weights.HANDLERS,
    **watch.HANDLERS,
}
"""Verb → what it does."""
