"""Handlers of ctl's verbs, one file a group."""

from llmgw.cli.context import Handler
from llmgw.cli.groups import (
    audit,
    bands,
    cluster,
    engines,
    keys,
    logs,
    models,
    nodes,
    replicas,
    requests,
    scopes,
    series,
    settings,
    top,
    usage,
    watch,
    weights,
)

HANDLERS: dict[tuple[str, ...], Handler] = {
    **cluster.HANDLERS,
    **nodes.HANDLERS,
    **engines.HANDLERS,
    **models.HANDLERS,
    **replicas.HANDLERS,
    **keys.HANDLERS,
    **scopes.HANDLERS,
    **bands.HANDLERS,
    **usage.HANDLERS,
    **logs.HANDLERS,
    **requests.HANDLERS,
    **settings.HANDLERS,
    **audit.HANDLERS,
    **weights.HANDLERS,
    **watch.HANDLERS,
    **series.HANDLERS,
    **top.HANDLERS,
}
"""Verb → what it does."""
