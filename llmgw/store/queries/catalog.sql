-- name: list_models
select name, spec::text, facts::text, declared, created, changed, generation from models order by name

-- name: get_model
select m.name, spec::text, facts::text, declared, created, changed, generation
from models m join model_names n on n.model = m.name
where n.name = %(name)s

-- name: lock_model
select name, spec::text, facts::text, declared, created, changed, generation
from models where name = %(name)s for update

-- name: name_owner
select name, model from model_names where name = any(%(names)s) and model <> %(model)s order by name limit 1

-- name: insert_model
insert into models (name, spec, declared) values (%(name)s, %(spec)s::jsonb, %(declared)s)
returning name, spec::text, facts::text, declared, created, changed, generation

-- name: update_model
update models
set spec = %(spec)s::jsonb, declared = %(declared)s, facts = case when %(keep_facts)s then facts end,
    changed = clock_timestamp(), generation = generation + 1
where name = %(name)s
returning name, spec::text, facts::text, declared, created, changed, generation

-- name: delete_model
delete from models where name = %(name)s

-- name: set_facts
update models
set facts = %(facts)s::jsonb, changed = clock_timestamp(), generation = generation + 1
where name = %(name)s
returning name, spec::text, facts::text, declared, created, changed, generation
