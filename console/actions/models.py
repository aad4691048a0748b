"""What is done with models, their replicas and the requests they were asked."""

from console.actions import conditions, consequences, destinations
from console.actions.handler import Handler
from console.monitoring import place_of_subject
from llmgw.api.actions import Target

MODELS: tuple[Handler, ...] = (
    Handler(
        action_id="model.explain",
        targets=(Target.MODEL, Target.REPLICA),
        when=conditions.has_model,
        opens=destinations.explanation,
        footer=60,
    ),
    Handler(
        action_id="cluster.logs",
        targets=(Target.REPLICA, Target.MODEL, Target.NODE),
        when=destinations.has_log,
        opens=destinations.log,
        footer=58,
    ),
    Handler(
        action_id="model.show",
        variant="try",
        name="Try it",
        help="ask it something and watch the answer come",
        bound="t",
        targets=(Target.MODEL, Target.REPLICA),
        when=conditions.answers,
        opens=destinations.trial,
        footer=57,
    ),
    Handler(
        action_id="cluster.series",
        targets=(Target.MODEL, Target.REPLICA, Target.NODE),
        opens=place_of_subject,
        footer=54,
    ),
    Handler(action_id="request.list", bound="", targets=(Target.CLUSTER,), opens=destinations.requests),
    Handler(
        action_id="request.list",
        variant="of",
        help="requests as they end, and why one waited or failed",
        targets=(Target.MODEL, Target.KEY, Target.TEAM),
        opens=destinations.requests,
        footer=18,
    ),
    Handler(action_id="request.show", bound="", targets=(Target.CLUSTER,), opens=destinations.request),
    Handler(action_id="request.show", variant="row", targets=(Target.REQUEST,), opens=destinations.request, footer=60),
    Handler(action_id="model.start", when=conditions.stopped, do=lambda api, key: api.start(key).message, footer=50),
    Handler(action_id="model.scale", when=conditions.scalable, form="console.screens.scale:ScaleForm", footer=48),
    Handler(
        action_id="model.fallbacks", when=conditions.editable, form="console.screens.fallbacks:FallbacksForm", footer=47
    ),
    Handler(
        action_id="replica.restart",
        targets=(Target.REPLICA,),
        do=lambda api, key: api.restart(key).message,
        warn=consequences.restarts_replicas,
        footer=46,
    ),
    Handler(
        action_id="replica.restart",
        variant="model",
        targets=(Target.MODEL,),
        when=conditions.restartable,
        do=lambda api, key: api.restart(key).message,
        warn=consequences.restarts_models,
        footer=46,
    ),
    Handler(
        action_id="model.stop",
        when=conditions.running,
        do=lambda api, key: api.stop(key).message,
        warn=consequences.stops_models,
        footer=44,
    ),
    Handler(
        action_id="model.remove",
        when=conditions.editable,
        do=lambda api, key: api.remove(key).message,
        warn=consequences.removes_models,
        footer=20,
    ),
    Handler(
        action_id="model.remove",
        variant="files",
        name="Remove with its files…",
        bound="",
        when=conditions.editable,
        do=lambda api, key: api.remove(key, purge=True).message,
        warn=consequences.purges_models,
    ),
    Handler(action_id="model.serve", targets=(Target.CLUSTER,), form="console.screens.serve:ServeForm", footer=40),
)
