-- name: record
insert into audit (actor, action, target, before, after)
values (%(actor)s, %(action)s, %(target)s, %(before)s::jsonb, %(after)s::jsonb)

-- name: entries
select id, at, actor, action, target, before::text, after::text from audit
where (%(since)s::timestamptz is null or at >= %(since)s) and (%(before_id)s::bigint is null or id < %(before_id)s)
order by id desc limit %(limit)s
