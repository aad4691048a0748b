-- name: make_incoming
create temporary table if not exists usage_incoming (like usage) on commit delete rows

-- name: copy_incoming
copy usage_incoming (
    id, at, key_id, model, replica, status, failed, stream, input_tokens, cached_tokens, output_tokens,
    estimated, first_token_ms, duration_ms, attempts
) from stdin

-- name: take_incoming
with fresh as (
    insert into usage select distinct on (id) * from usage_incoming order by id
    on conflict (id) do nothing
    returning at, key_id, model, failed, input_tokens, cached_tokens, output_tokens
), daily as (
    insert into usage_daily as d
        (day, key_id, model, requests, failed, input_tokens, cached_tokens, output_tokens, last_at)
    select (at at time zone 'UTC')::date, key_id, model, count(*), count(*) filter (where failed),
        sum(input_tokens), sum(cached_tokens), sum(output_tokens), max(at)
    from fresh group by 1, 2, 3 order by 1, 2, 3
    on conflict (day, key_id, model) do update
    set requests = d.requests + excluded.requests, failed = d.failed + excluded.failed,
        input_tokens = d.input_tokens + excluded.input_tokens,
        cached_tokens = d.cached_tokens + excluded.cached_tokens,
        output_tokens = d.output_tokens + excluded.output_tokens,
        last_at = greatest(d.last_at, excluded.last_at)
)
select count(*) as new from fresh

-- name: totals
select case when %(by_key)s then key_id else '' end as key_id, case when %(by_model)s then model else '' end as model,
    sum(requests)::bigint as requests, sum(failed)::bigint as failed, sum(input_tokens)::bigint as input_tokens,
    sum(cached_tokens)::bigint as cached_tokens, sum(output_tokens)::bigint as output_tokens,
    max(last_at) as last_at
from usage_daily
where day >= coalesce(%(since)s::date, '-infinity'::date)
group by 1, 2 order by 1, 2

-- name: drop_old
delete from usage where id in (
    select id from usage where at < clock_timestamp() - make_interval(days => %(days)s) order by at limit %(limit)s
)
