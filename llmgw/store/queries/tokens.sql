-- name: create_token
insert into join_tokens (digest, expires, created_by)
values (%(digest)s, clock_timestamp() + make_interval(secs => %(ttl_s)s), %(actor)s)
returning expires

-- name: consume_token
update join_tokens set used = clock_timestamp(), node = %(node)s
where digest = %(digest)s and used is null and expires > clock_timestamp()

-- name: describe_token
select expires, used, node from join_tokens where digest = %(digest)s

-- name: forget_old_tokens
delete from join_tokens where expires < clock_timestamp() - make_interval(secs => %(age_s)s)
