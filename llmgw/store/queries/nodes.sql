-- name: list_nodes
select name, fingerprint, serial, joined, renewed, cordoned, evicted from nodes order by name

-- name: get_node
select name, fingerprint, serial, joined, renewed, cordoned, evicted from nodes where name = %(name)s

-- name: lock_node
select name, fingerprint, serial, joined, renewed, cordoned, evicted from nodes where name = %(name)s for update

-- name: upsert_node
insert into nodes (name, fingerprint, serial) values (%(name)s, %(fingerprint)s, %(serial)s)
on conflict (name) do update
set fingerprint = excluded.fingerprint, serial = excluded.serial, evicted = null, renewed = clock_timestamp(),
    joined = case when nodes.evicted is null then nodes.joined else clock_timestamp() end,
    cordoned = nodes.cordoned and nodes.evicted is null
returning name, fingerprint, serial, joined, renewed, cordoned, evicted

-- name: set_cordoned
update nodes set cordoned = %(cordoned)s where name = %(name)s
returning name, fingerprint, serial, joined, renewed, cordoned, evicted

-- name: evict_node
update nodes set evicted = clock_timestamp() where name = %(name)s
returning name, fingerprint, serial, joined, renewed, cordoned, evicted
