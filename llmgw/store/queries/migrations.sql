-- name: lock
select pg_advisory_xact_lock(%(key)s)

-- name: make_table
create table if not exists schema_migrations (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied timestamptz not null default clock_timestamp()
)

-- name: applied
select version, name, checksum from schema_migrations order by version

-- name: record
insert into schema_migrations (version, name, checksum) values (%(version)s, %(name)s, %(checksum)s)

-- name: unlimited
set local statement_timeout = 0
