-- name: load
select key, value::text from settings order by key

-- name: lock_setting
select key, value::text from settings where key = %(key)s for update

-- name: put
insert into settings (key, value) values (%(key)s, %(value)s::jsonb)
on conflict (key) do update set value = excluded.value, changed = clock_timestamp()

-- name: unset
delete from settings where key = %(key)s
