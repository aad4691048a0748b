-- name: create_key
insert into api_keys (id, name, digest, models, created_by)
values (%(id)s, %(name)s, %(digest)s, %(models)s, %(actor)s)
on conflict do nothing
returning id, name, models, created, created_by, revoked, null::timestamptz as last_used,
    0::bigint as requests, 0::bigint as input_tokens, 0::bigint as output_tokens

-- name: list_keys
select k.id, k.name, k.models, k.created, k.created_by, k.revoked, u.last_used,
    coalesce(u.requests, 0)::bigint as requests, coalesce(u.input_tokens, 0)::bigint as input_tokens,
    coalesce(u.output_tokens, 0)::bigint as output_tokens
from api_keys k
left join (
    select key_id, max(last_at) as last_used, sum(requests) as requests,
        sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens
    from usage_daily group by key_id
) u on u.key_id = k.id
order by k.created, k.id

-- name: by_digest
select id, name, models, revoked is not null as revoked from api_keys where digest = %(digest)s

-- name: digest_of
select digest from api_keys where id = %(id)s

-- name: lock_key
select id, name, digest, revoked is not null as revoked from api_keys where id = %(id)s for update

-- name: revoke_key
update api_keys set revoked = clock_timestamp(), revoked_by = %(actor)s where id = %(id)s
