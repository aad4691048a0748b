-- name: read
select value::text from settings where key = %(key)s

-- name: hold
select value::text from settings where key = %(key)s for key share

-- name: begin
insert into settings (key, value) values (%(key)s, '{}') on conflict (key) do nothing

-- name: lock
select value::text from settings where key = %(key)s for update

-- name: put
update settings set value = %(value)s::jsonb, changed = clock_timestamp() where key = %(key)s

-- name: users
select 'key' as kind, id, name, band from api_keys where band is not null and revoked is null
union all
select 'team', name, name, band from teams where band is not null
order by kind, id
