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
    evicted timestamptz
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

-- The key itself is nowhere; digest is an HMAC under the cluster's pepper.
create table api_keys (
    id text primary key,
    name text not null,
    digest text not null unique,
    models text[],
    created timestamptz not null default clock_timestamp(),
    created_by text not null,
    revoked timestamptz,
    revoked_by text
);

-- One row an answered request. The id makes storing it twice harmless.
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
    attempts integer not null
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
    primary key (day, key_id, model)
);
create index usage_daily_key on usage_daily (key_id);

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
