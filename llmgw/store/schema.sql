-- The database as all migrations together leave it. For reading; a test holds it equal to them.
-- Settings of the cluster; defaults live in the code.
create table settings (
    key text primary key,
    value jsonb not null,
    changed timestamptz not null default clock_timestamp()
);

-- What operators want served.
create table models (
    name text primary key,
    spec jsonb not null,
    facts jsonb,
    declared boolean not null default false,
    created timestamptz not null default clock_timestamp(),
    changed timestamptz not null default clock_timestamp(),
    generation bigint not null default 1
);

-- Every name a client may use, one model each. Kept by the trigger below, so no writer can get it wrong.
create table model_names (
    name text primary key,
    model text not null references models (name) on delete cascade
);
create index model_names_model on model_names (model);

create function keep_model_names() returns trigger language plpgsql as $$
begin
    delete from model_names where model = new.name;
    insert into model_names (name, model) values (new.name, new.name);
    insert into model_names (name, model)
        select value, new.name from jsonb_array_elements_text(coalesce(new.spec -> 'aliases', '[]'::jsonb));
    return new;
end
$$;
create trigger models_names after insert or update of spec on models
    for each row execute function keep_model_names();

-- Machines that enrolled. An evicted one keeps its row, so that its certificate stays refused.
create table nodes (
    name text primary key,
    fingerprint text not null,
    serial text not null,
    joined timestamptz not null default clock_timestamp(),
    renewed timestamptz not null default clock_timestamp(),
    cordoned boolean not null default false,
    evicted timestamptz,
    builds jsonb not null default '{}'
);
create unique index nodes_fingerprint on nodes (fingerprint);

create table join_tokens (
    digest text primary key,
    expires timestamptz not null,
    created timestamptz not null default clock_timestamp(),
    created_by text not null,
    used timestamptz,
    node text
);

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
    created_by text not null,
    band text
);
create index teams_tenant on teams (tenant);

-- The key itself is nowhere; digest is an HMAC under the cluster's pepper.
-- A team goes only when no living key is in it; revoked ones lose it then, their usage keeps its name.
-- The band a key's requests wait in where a model takes no more: the key's own, else its team's, else the default one.
-- Which bands there are is a setting (router.bands).
create table api_keys (
    id text primary key,
    name text not null,
    digest text not null unique,
    models text[],
    created timestamptz not null default clock_timestamp(),
    created_by text not null,
    revoked timestamptz,
    revoked_by text,
    team text references teams (name) on delete set null,
    limits jsonb not null default '{}',
    budgets jsonb not null default '[]',
    band text
);
create index api_keys_team on api_keys (team);
create index api_keys_name on api_keys (name);
create index api_keys_band on api_keys (band) where band is not null;

-- One row an answered request. The id makes storing it twice harmless.
-- The team is the one the request was let in under, the tenant that team's when the row was stored: what moves takes no
-- spending along.
-- Where and how long a request waited, and the model that was asked for where another one answered.
create table usage (
    id text primary key,
    at timestamptz not null,
    key_id text not null,
    model text not null,
    replica text not null,
    status integer not null,
    failed boolean not null,
    stream boolean not null,
    input_tokens bigint not null,
    cached_tokens bigint not null,
    output_tokens bigint not null,
    estimated boolean not null,
    first_token_ms double precision,
    duration_ms double precision not null,
    attempts integer not null,
    cost_micros bigint not null default 0,
    team text not null default '',
    tenant text not null default '',
    band text not null default '',
    waited_ms double precision not null default 0,
    asked text not null default ''
);
create index usage_key_at on usage (key_id, at);
create index usage_model_at on usage (model, at);
create index usage_at on usage (at);

-- Sums of usage by UTC day, kept in the transaction that stores the rows: totals never read the rows again.
create table usage_daily (
    day date not null,
    key_id text not null,
    model text not null,
    requests bigint not null,
    failed bigint not null,
    input_tokens bigint not null,
    cached_tokens bigint not null,
    output_tokens bigint not null,
    last_at timestamptz not null,
    cost_micros bigint not null default 0,
    team text not null default '',
    tenant text not null default '',
    primary key (day, key_id, model, team, tenant)
);
-- What a key spent in a period is read from this alone.
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

create table audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    action text not null,
    target text not null,
    before jsonb,
    after jsonb
);
create index audit_at on audit (at);

create function refuse_audit_change() returns trigger language plpgsql as $$
begin
    raise exception 'the audit is append-only: % refused', tg_op using errcode = 'restrict_violation';
end
$$;
create trigger audit_append_only before update or delete or truncate on audit
    for each statement execute function refuse_audit_change();

-- The one lease. epoch is the key on purpose: a new epoch locks the row against every writer that holds the old one
-- (for key share), while a renewal, which leaves the key alone, waits for no writer.
create table leadership (
    epoch bigint primary key,
    owner text not null,
    host text not null,
    pid bigint not null,
    expires_at timestamptz not null
);
create unique index leadership_one_row on leadership ((true));
insert into leadership (epoch, owner, host, pid, expires_at) values (0, '', '', 0, '-infinity');
