-- The band a key's requests wait in where a model takes no more: the key's own, else its team's, else the default one.
-- Which bands there are is a setting (router.bands).
alter table api_keys add column band text;
alter table teams add column band text;
create index api_keys_band on api_keys (band) where band is not null;

-- Where and how long a request waited, and the model that was asked for where another one answered.
alter table usage
    add column band text not null default '',
    add column waited_ms double precision not null default 0,
    add column asked text not null default '';
