"""What is done with nodes, the engines on them, and the weights on the mirror."""

from console.actions import conditions, consequences, destinations
from console.actions.engines import builds_packages, check_engines, has_build_log, install_log, real_node
from console.actions.handler import Handler
from llmgw.api.actions import Target

MACHINES: tuple[Handler, ...] = (
    Handler(
        action_id="node.join-token",
        name="Let a node join…",
        targets=(Target.CLUSTER,),
        views=("nodes",),
        form="console.screens.join_form:JoinForm",
        footer=40,
    ),
    Handler(
        action_id="weights.fetch",
        targets=(Target.CLUSTER,),
        views=("weights",),
        form="console.screens.fetch_form:FetchForm",
        footer=50,
    ),
    Handler(
        action_id="weights.fetch",
        variant="again",
        name="Try again",
        help="fetch a set that failed again, at once",
        bound="r",
        targets=(Target.WEIGHTS,),
        when=conditions.failed_weights,
        do=lambda api, key: api.fetch_weights(key).message,
        footer=48,
    ),
    Handler(
        action_id="weights.verify",
        when=conditions.whole_weights,
        do=lambda api, key: api.verify_weights(key).message,
        footer=47,
    ),
    Handler(
        action_id="weights.remove",
        when=conditions.orphan,
        do=lambda api, key: api.remove_weights(key).message,
        warn=consequences.removes_weights,
        footer=46,
    ),
    Handler(
        action_id="node.cordon", when=conditions.open_node, do=lambda api, key: api.cordon(key, True).message, footer=50
    ),
    Handler(action_id="engine.check", do=check_engines),
    Handler(
        action_id="node.build",
        variant="vllm",
        name="vLLM build…",
        when=builds_packages,
        form="console.screens.build_form:VllmBuildForm",
    ),
    Handler(
        action_id="node.build",
        variant="sglang",
        name="SGLang build…",
        when=builds_packages,
        form="console.screens.build_form:SglangBuildForm",
    ),
    Handler(
        action_id="node.build",
        variant="llamacpp",
        name="llama.cpp build…",
        when=real_node,
        form="console.screens.build_form:LlamaCppBuildForm",
    ),
    Handler(
        action_id="cluster.logs",
        variant="build",
        name="Installation's log",
        help="what installing an engine prints, or printed before it failed",
        bound="",
        targets=(Target.NODE,),
        when=has_build_log,
        opens=install_log,
    ),
    Handler(
        action_id="cluster.logs",
        variant="server",
        name="Server's log",
        help="what the control plane says of itself; `:logs server` too",
        bound="",
        targets=(Target.CLUSTER,),
        opens=destinations.server_log,
    ),
    Handler(
        action_id="node.uncordon",
        when=conditions.cordoned,
        do=lambda api, key: api.cordon(key, False).message,
        footer=50,
    ),
)
