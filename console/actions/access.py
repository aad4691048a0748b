"""What is done with who may ask: keys, teams and tenants, their limits, budgets and usage."""

from console.actions import conditions, consequences, destinations
from console.actions.handler import Handler
from llmgw.api.actions import Target
from llmgw.core.limits import ScopeKind

KEY_VIEWS = ("keys", "key", "team", "tenant")

ACCESS: tuple[Handler, ...] = (
    Handler(
        action_id="key.create",
        targets=(Target.CLUSTER,),
        views=KEY_VIEWS,
        form="console.screens.key_form:KeyForm",
        footer=50,
    ),
    Handler(
        action_id="team.create",
        bound="N",
        targets=(Target.CLUSTER,),
        views=KEY_VIEWS,
        form="console.screens.scope_form:TeamForm",
        footer=40,
    ),
    Handler(
        action_id="tenant.create",
        bound="T",
        targets=(Target.CLUSTER,),
        views=KEY_VIEWS,
        form="console.screens.scope_form:TenantForm",
        footer=39,
    ),
    Handler(
        action_id="usage.list",
        bound="u",
        targets=(Target.CLUSTER,),
        views=KEY_VIEWS,
        opens=destinations.usage,
        footer=45,
    ),
    Handler(action_id="key.limits", when=conditions.good_key, form="console.screens.quota_forms:LimitsForm", footer=56),
    Handler(action_id="key.budget", when=conditions.good_key, form="console.screens.quota_forms:BudgetForm", footer=55),
    Handler(action_id="key.move", when=conditions.good_key, form="console.screens.quota_forms:MoveForm", footer=47),
    Handler(action_id="key.band", when=conditions.good_key, form="console.screens.band_form:BandForm"),
    Handler(
        action_id="team.limits", when=conditions.known_scope, form="console.screens.quota_forms:LimitsForm", footer=56
    ),
    Handler(
        action_id="team.budget", when=conditions.known_scope, form="console.screens.quota_forms:BudgetForm", footer=55
    ),
    Handler(action_id="team.move", when=conditions.known_scope, form="console.screens.quota_forms:MoveForm", footer=47),
    Handler(action_id="team.band", when=conditions.known_scope, form="console.screens.band_form:BandForm"),
    Handler(
        action_id="team.remove",
        when=conditions.nothing_beneath,
        do=lambda api, key: api.remove_scope(ScopeKind.TEAM, key).message,
        warn=consequences.removes_teams,
        footer=46,
    ),
    Handler(
        action_id="tenant.limits", when=conditions.known_scope, form="console.screens.quota_forms:LimitsForm", footer=56
    ),
    Handler(
        action_id="tenant.budget", when=conditions.known_scope, form="console.screens.quota_forms:BudgetForm", footer=55
    ),
    Handler(
        action_id="tenant.remove",
        when=conditions.nothing_beneath,
        do=lambda api, key: api.remove_scope(ScopeKind.TENANT, key).message,
        warn=consequences.removes_tenants,
        footer=46,
    ),
    Handler(
        action_id="key.revoke",
        when=conditions.good_key,
        do=lambda api, key: api.revoke_key(key).message,
        warn=consequences.revokes_keys,
        look=consequences.used_lately,
        typed=False,
        footer=46,
    ),
)
