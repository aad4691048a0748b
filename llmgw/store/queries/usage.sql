-- name: make_incoming
create temporary table if not exists usage_incoming (like usage including defaults, told_team text)
on commit delete rows

-- name: copy_incoming
copy usage_incoming (
    id, at, key_id, model, replica, status, failed, stream, input_tokens, cached_tokens, output_tokens,
    estimated, first_token_ms, duration_ms, attempts, cost_micros, band, waited_ms, asked, told_team
) from stdin

-- name: take_incoming
with fresh as (
    insert into usage (
        id, at, key_id, model, replica, status, failed, stream, input_tokens, cached_tokens, output_tokens,
        estimated, first_token_ms, duration_ms, attempts, cost_micros, band, waited_ms, asked, team, tenant
    )
    select distinct on (i.id)
        -- Of a router whose clock ran ahead: left as it is, it would count in every month's budget until then.
        i.id, least(i.at, clock_timestamp()), i.key_id, i.model, i.replica, i.status, i.failed, i.stream, i.input_tokens, i.cached_tokens,
        i.output_tokens, i.estimated, i.first_token_ms, i.duration_ms, i.attempts, i.cost_micros,
        i.band, i.waited_ms, i.asked, coalesce(i.told_team, k.team, ''), coalesce(t.tenant, '')
    from usage_incoming i
    left join api_keys k on k.id = i.key_id
    left join teams t on t.name = coalesce(i.told_team, k.team)
    order by i.id
    on conflict (id) do nothing
    returning at, key_id, model, team, tenant, failed, input_tokens, cached_tokens, output_tokens, cost_micros
), daily as (
    insert into usage_daily as d (
        day, key_id, model, team, tenant, requests, failed, input_tokens, cached_tokens, output_tokens,
        cost_micros, last_at
    )
    select (at at time zone 'UTC')::date, key_id, model, team, tenant, count(*), count(*) filter (where failed),
        sum(input_tokens), sum(cached_tokens), sum(output_tokens), sum(cost_micros), max(at)
    from fresh group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
    on conflict (day, key_id, model, team, tenant) do update
    set requests = d.requests + excluded.requests, failed = d.failed + excluded.failed,
        input_tokens = d.input_tokens + excluded.input_tokens,
        cached_tokens = d.cached_tokens + excluded.cached_tokens,
        output_tokens = d.output_tokens + excluded.output_tokens,
        cost_micros = d.cost_micros + excluded.cost_micros,
        last_at = greatest(d.last_at, excluded.last_at)
), scoped as (
    select kind, id, (at at time zone 'UTC')::date as day, count(*) as requests, sum(input_tokens) as input_tokens,
        sum(output_tokens) as output_tokens, sum(cost_micros) as cost_micros, max(at) as last_at
    from fresh
    cross join lateral (values ('key', key_id), ('team', team), ('tenant', tenant)) as scope (kind, id)
    where id <> '' group by 1, 2, 3
), by_day as (
    insert into scope_daily as d (kind, id, day, requests, input_tokens, output_tokens, cost_micros)
    select kind, id, day, requests, input_tokens, output_tokens, cost_micros from scoped order by 1, 2, 3
    on conflict (kind, id, day) do update
    set requests = d.requests + excluded.requests, input_tokens = d.input_tokens + excluded.input_tokens,
        output_tokens = d.output_tokens + excluded.output_tokens, cost_micros = d.cost_micros + excluded.cost_micros
), in_all as (
    insert into scope_totals as t (kind, id, requests, input_tokens, output_tokens, cost_micros, last_at)
    select kind, id, sum(requests), sum(input_tokens), sum(output_tokens), sum(cost_micros), max(last_at)
    from scoped group by 1, 2 order by 1, 2
    on conflict (kind, id) do update
    set requests = t.requests + excluded.requests, input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens, cost_micros = t.cost_micros + excluded.cost_micros,
        last_at = greatest(t.last_at, excluded.last_at)
)
select count(*) as new from fresh

-- name: totals
with sums as (
    select case when %(by_key)s then key_id else '' end as key_id,
        case when %(by_model)s then model else '' end as model,
        case when %(by_team)s then team else '' end as team,
        case when %(by_tenant)s then tenant else '' end as tenant,
        sum(requests)::bigint as requests, sum(failed)::bigint as failed, sum(input_tokens)::bigint as input_tokens,
        sum(cached_tokens)::bigint as cached_tokens, sum(output_tokens)::bigint as output_tokens,
        sum(cost_micros)::bigint as cost_micros, max(last_at) as last_at
    from usage_daily
    where day >= coalesce(%(since)s::date, '-infinity'::date) and day <= coalesce(%(until)s::date, 'infinity'::date)
    group by 1, 2, 3, 4
)
select sums.*, coalesce(k.name, '') as key
from sums left join api_keys k on k.id = sums.key_id
order by sums.key_id, sums.model, sums.team, sums.tenant

-- name: model_costs
select d.model, sum(d.cost_micros)::bigint as cost_micros
from usage_daily d cross join usage_period p
where d.day = p.today
group by d.model having sum(d.cost_micros) > 0

-- name: drop_old
delete from usage where id in (
    select id from usage where at < clock_timestamp() - make_interval(days => %(days)s) order by at limit %(limit)s
)
