-- name: list_scopes
with living as materialized (
    select team, count(*) as keys from api_keys where revoked is null and team is not null group by team
), scopes as (
    select 'team' as kind, t.name, t.tenant, t.band, t.limits, t.budgets, t.created, coalesce(l.keys, 0)::bigint as keys
    from teams t left join living l on l.team = t.name
    union all
    select 'tenant', n.name, null, null, n.limits, n.budgets, n.created,
        coalesce((select sum(l.keys) from teams t join living l on l.team = t.name where t.tenant = n.name), 0)::bigint
    from tenants n
)
select c.*,
    coalesce(t.requests, 0) as requests, coalesce(t.input_tokens, 0) as input_tokens,
    coalesce(t.output_tokens, 0) as output_tokens, coalesce(t.cost_micros, 0) as cost_micros,
    coalesce(s.day_micros, 0) as spent_day_micros, coalesce(s.month_micros, 0) as spent_month_micros
from scopes c
left join scope_totals t on t.kind = c.kind and t.id = c.name
left join scope_spent s on s.kind = c.kind and s.id = c.name
where %(kind)s::text is null or c.kind = %(kind)s
order by c.kind desc, c.name

-- name: records
with scopes as (
    select 'team' as kind, name as id, coalesce(tenant, '') as tenant, limits, budgets from teams
    union all
    select 'tenant', name, '', limits, budgets from tenants
)
select c.kind, c.id, c.tenant, c.limits, c.budgets,
    case when c.budgets = '[]' then '{}'::jsonb else jsonb_build_object(
        'day', p.day, 'day_micros', coalesce(s.day_micros, 0),
        'month', p.month, 'month_micros', coalesce(s.month_micros, 0)
    ) end as spent
from scopes c
cross join usage_period p
left join lateral (
    select sum(d.cost_micros) filter (where d.day = p.today)::bigint as day_micros,
        sum(d.cost_micros)::bigint as month_micros
    from scope_daily d
    where d.kind = c.kind and d.id = c.id and d.day >= p.month_begin and c.budgets <> '[]'
) s on true
order by c.kind, c.id

-- name: create_team
insert into teams (name, tenant, limits, budgets, created_by)
values (%(name)s, %(tenant)s, %(limits)s::jsonb, %(budgets)s::jsonb, %(actor)s)
on conflict do nothing

-- name: create_tenant
insert into tenants (name, limits, budgets, created_by)
values (%(name)s, %(limits)s::jsonb, %(budgets)s::jsonb, %(actor)s)
on conflict do nothing

-- name: team_names
select name from teams order by created desc limit 1000

-- name: tenant_names
select name from tenants order by created desc limit 1000

-- name: lock_team
select name, tenant, band, limits, budgets from teams where name = %(name)s for update

-- name: lock_tenant
select name, null as tenant, limits, budgets from tenants where name = %(name)s for update

-- name: hold_team
select name, tenant, limits, budgets from teams where name = %(name)s for key share

-- name: hold_tenant
select name, null as tenant, limits, budgets from tenants where name = %(name)s for key share

-- name: set_team_limits
update teams set limits = %(limits)s::jsonb where name = %(name)s

-- name: set_tenant_limits
update tenants set limits = %(limits)s::jsonb where name = %(name)s

-- name: set_team_budgets
update teams set budgets = %(budgets)s::jsonb where name = %(name)s

-- name: set_tenant_budgets
update tenants set budgets = %(budgets)s::jsonb where name = %(name)s

-- name: set_tenant
update teams set tenant = %(tenant)s where name = %(name)s

-- name: beneath_team
select id as name from api_keys where team = %(name)s and revoked is null order by created, id limit %(limit)s

-- name: beneath_tenant
select name from teams where tenant = %(name)s order by name limit %(limit)s

-- name: remove_team
delete from teams where name = %(name)s

-- name: remove_tenant
delete from tenants where name = %(name)s

-- name: set_team_band
update teams set band = %(band)s where name = %(name)s

-- name: keys_of_team
select id, digest from api_keys where team = %(name)s and revoked is null order by id
