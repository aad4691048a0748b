-- name: create_key
insert into api_keys (id, name, digest, models, team, limits, budgets, band, created_by)
values (
    %(id)s, %(name)s, %(digest)s, %(models)s, %(team)s, %(limits)s::jsonb, %(budgets)s::jsonb, %(band)s, %(actor)s
)
on conflict do nothing

-- name: list_keys
select k.id, k.name, k.models, k.team, k.band, k.limits, k.budgets, k.created, k.created_by, k.revoked,
    t.last_at as last_used, coalesce(t.requests, 0) as requests, coalesce(t.input_tokens, 0) as input_tokens,
    coalesce(t.output_tokens, 0) as output_tokens, coalesce(t.cost_micros, 0) as cost_micros,
    coalesce(s.day_micros, 0) as spent_day_micros, coalesce(s.month_micros, 0) as spent_month_micros
from api_keys k
left join scope_totals t on t.kind = 'key' and t.id = k.id
left join scope_spent s on s.kind = 'key' and s.id = k.id
order by k.created, k.id

-- name: by_digest
select k.id, k.name, k.models, k.revoked is not null as revoked, coalesce(k.team, '') as team, k.limits, k.budgets,
    coalesce(k.band, w.band, '') as band,
    case when k.budgets = '[]' then '{}'::jsonb else jsonb_build_object(
        'day', p.day, 'day_micros', coalesce(s.day_micros, 0),
        'month', p.month, 'month_micros', coalesce(s.month_micros, 0)
    ) end as spent
from api_keys k
left join teams w on w.name = k.team
cross join usage_period p
left join lateral (
    select sum(d.cost_micros) filter (where d.day = p.today)::bigint as day_micros,
        sum(d.cost_micros)::bigint as month_micros
    from usage_daily d
    where d.key_id = k.id and d.day >= p.month_begin and k.budgets <> '[]'
) s on true
where k.digest = %(digest)s

-- name: digest_of
select digest from api_keys where id = %(id)s

-- name: find_key
select id, name, revoked is not null as revoked from api_keys
where id = %(id)s or name = %(id)s
order by id = %(id)s desc, revoked is not null, created, id limit %(limit)s

-- name: living_keys
select id, name from api_keys where revoked is null order by created desc limit 1000

-- name: lock_key
select id, name, digest, team, band, limits, budgets, revoked is not null as revoked
from api_keys where id = %(id)s for update

-- name: revoke_key
update api_keys set revoked = clock_timestamp(), revoked_by = %(actor)s where id = %(id)s

-- name: set_limits
update api_keys set limits = %(limits)s::jsonb where id = %(id)s

-- name: set_budgets
update api_keys set budgets = %(budgets)s::jsonb where id = %(id)s

-- name: set_team
update api_keys set team = %(team)s where id = %(id)s

-- name: set_band
update api_keys set band = %(band)s where id = %(id)s
