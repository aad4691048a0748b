-- Tenants hold teams, teams hold keys. Limits and budgets are the documents of llmgw.core.limits.
create table tenants (
    name text primary key,
    limits jsonb not null default '{}',
    budgets jsonb not null default '[]',
    created timestamptz not null default clock_timestamp(),
    created_by text not null
);

create table teams (
    name text primary key,
    tenant text references tenants (name),
    limits jsonb not null default '{}',
    budgets jsonb not null default '[]',
    created timestamptz not null default clock_timestamp(),
    created_by text not null
);
create index teams_tenant on teams (tenant);

-- A team goes only when no living key is in it; revoked ones lose it then, their usage keeps its name.
alter table api_keys
    add column team text references teams (name) on delete set null,
    add column limits jsonb not null default '{}',
    add column budgets jsonb not null default '[]';
create index api_keys_team on api_keys (team);
create index api_keys_name on api_keys (name);

-- The team is the one the request was let in under, the tenant that team's when the row was stored: what moves takes no
-- spending along.
alter table usage
    add column cost_micros bigint not null default 0,
    add column team text not null default '',
    add column tenant text not null default '';

alter table usage_daily
    add column cost_micros bigint not null default 0,
    add column team text not null default '',
    add column tenant text not null default '';
alter table usage_daily drop constraint usage_daily_pkey;
alter table usage_daily add primary key (day, key_id, model, team, tenant);

-- What a key spent in a period is read from this alone.
drop index usage_daily_key;
create index usage_daily_key on usage_daily (key_id, day) include (cost_micros);

-- Sums of what was used by each key and under each team and tenant, by UTC day, kept with those above: what all keys of
-- a team spent this month is 31 rows, however many keys it has.
create table scope_daily (
    kind text not null,
    id text not null,
    day date not null,
    requests bigint not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    cost_micros bigint not null,
    primary key (kind, id, day)
);
create index scope_daily_day on scope_daily (day);

-- The same over all days: keys, teams and tenants are listed every few seconds while somebody looks at them.
create table scope_totals (
    kind text not null,
    id text not null,
    requests bigint not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    cost_micros bigint not null,
    last_at timestamptz not null,
    primary key (kind, id)
);

insert into scope_daily (kind, id, day, requests, input_tokens, output_tokens, cost_micros)
select 'key', key_id, day, sum(requests), sum(input_tokens), sum(output_tokens), 0 from usage_daily group by key_id, day;
insert into scope_totals (kind, id, requests, input_tokens, output_tokens, cost_micros, last_at)
select 'key', key_id, sum(requests), sum(input_tokens), sum(output_tokens), 0, max(last_at)
from usage_daily group by key_id;

-- The day and month spending is counted in, and their numbers as llmgw.core.limits has them.
create view usage_period as
select
    today,
    date_trunc('month', today::timestamp)::date as month_begin,
    today - date '1970-01-01' as day,
    (extract(year from today) * 12 + extract(month from today) - 1)::integer as month
from (select (now() at time zone 'UTC')::date as today) as clock;

-- What each key, team and tenant spent in these; none where nothing was used this month.
create view scope_spent as
select d.kind, d.id,
    coalesce(sum(d.cost_micros) filter (where d.day = p.today), 0)::bigint as day_micros,
    sum(d.cost_micros)::bigint as month_micros
from scope_daily d cross join usage_period p
where d.day >= p.month_begin
group by d.kind, d.id;
