-- name: list_nodes
select name, fingerprint, serial, joined, renewed, cordoned, evicted, builds from nodes order by name

-- name: get_node
select name, fingerprint, serial, joined, renewed, cordoned, evicted, builds from nodes where name = %(name)s

-- name: lock_node
select name, fingerprint, serial, joined, renewed, cordoned, evicted, builds from nodes where name = %(name)s for update

-- name: upsert_node
insert into nodes (name, fingerprint, serial) values (%(name)s, %(fingerprint)s, %(serial)s)
on conflict (name) do update
set fingerprint = excluded.fingerprint, serial = excluded.serial, evicted = null, renewed = clock_timestamp(),
    joined = case when nodes.evicted is null then nodes.joined else clock_timestamp() end,
    cordoned = nodes.cordoned and nodes.evicted is null,
    builds = case when nodes.evicted is null then nodes.builds else '{}'::jsonb end
returning name, fingerprint, serial, joined, renewed, cordoned, evicted, builds

-- name: set_cordoned
update nodes set cordoned = %(cordoned)s where name = %(name)s
returning name, fingerprint, serial, joined, renewed, cordoned, evicted, builds

-- name: evict_node
update nodes set evicted = clock_timestamp() where name = %(name)s
returning name, fingerprint, serial, joined, renewed, cordoned, evicted, builds

-- name: set_build
update nodes set builds = case when %(version)s::text is null then builds - %(engine)s::text
    else builds || jsonb_build_object(%(engine)s::text, %(version)s::text) end
where name = %(name)s
returning name, fingerprint, serial, joined, renewed, cordoned, evicted, builds
