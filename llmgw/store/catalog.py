"""The catalog as stored. No two models share a name or alias: the database itself refuses it."""

from datetime import datetime
from typing import TypeVar

import msgspec

from llmgw.core.catalog import Model, ModelFacts
from llmgw.core.errors import Conflict, NotFound
from llmgw.store import audit
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

TOPIC = "catalog"

_SQL = load("catalog")
T = TypeVar("T")


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model with what is known of it."""

    spec: Model
    facts: ModelFacts | None
    declared: bool
    """Comes from the server's configuration; model commands cannot change it."""
    created: datetime
    changed: datetime
    generation: int
    """1 when it was added, one more with every change."""

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.spec.name


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    spec: str
    facts: str | None
    declared: bool
    created: datetime
    changed: datetime
    generation: int

    def entry(self) -> CatalogEntry:
        return CatalogEntry(
            spec=_decode(self.spec, Model),
            facts=None if self.facts is None else _decode(self.facts, ModelFacts),
            declared=self.declared,
            created=self.created,
            changed=self.changed,
            generation=self.generation,
        )


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    model: str


def list_models(conn: Conn) -> tuple[CatalogEntry, ...]:
    """Every model, by name."""
    return tuple(row.entry() for row in fetch_all(conn, _SQL["list_models"], _Row))


def get_model(conn: Conn, name: str) -> CatalogEntry | None:
    """The model of that name or alias."""
    row = fetch_one(conn, _SQL["get_model"], _Row, {"name": name})
    return row.entry() if row else None


def put_model(
    conn: Conn, model: Model, *, actor: str, declared: bool = False, expected_generation: int | None = None
) -> CatalogEntry:
    """Add the model, or replace the one of its name; the same again changes nothing. `model` is checked already.

    `expected_generation` makes it a comparison: 0 only adds, n only replaces generation n. Facts are kept while the
    source stays. Raises Conflict for that comparison and for a name that another model has.
    """
    before = _locked(conn, model.name)
    have = before.generation if before else 0
    if expected_generation is not None and expected_generation != have:
        raise Conflict(_generation_conflict(model.name, expected_generation, have))
    if before and before.spec == model and before.declared == declared:
        return before
    _refuse_taken_names(conn, model)
    params = {"name": model.name, "spec": msgspec.json.encode(model).decode(), "declared": declared}
    if before is None:
        row = fetch_one(conn, _SQL["insert_model"], _Row, params)
    else:
        keep = {"keep_facts": before.spec.source == model.source}
        row = fetch_one(conn, _SQL["update_model"], _Row, params | keep)
    _record(conn, actor, "model.change" if before else "model.add", model.name, before, model)
    return _found(row, model.name)


def remove_model(conn: Conn, name: str, *, actor: str) -> CatalogEntry:
    """Take the model out of the catalog; answers what it was. Raises NotFound (an alias is not enough)."""
    before = _locked(conn, name)
    if before is None:
        raise NotFound(f"there is no model {name!r}")
    execute(conn, _SQL["delete_model"], {"name": name})
    _record(conn, actor, "model.remove", name, before, None)
    return before


def set_facts(conn: Conn, name: str, facts: ModelFacts, *, actor: str) -> CatalogEntry:
    """Keep what the weights said of themselves; the same again changes nothing. Raises NotFound."""
    before = _locked(conn, name)
    if before is None:
        raise NotFound(f"there is no model {name!r}")
    if before.facts == facts:
        return before
    row = fetch_one(conn, _SQL["set_facts"], _Row, {"name": name, "facts": msgspec.json.encode(facts).decode()})
    audit.record(conn, actor=actor, action="model.facts", target=name, before=before.facts, after=facts)
    notify(conn, TOPIC, name)
    return _found(row, name)


def _locked(conn: Conn, name: str) -> CatalogEntry | None:
    row = fetch_one(conn, _SQL["lock_model"], _Row, {"name": name})
    return row.entry() if row else None


def _refuse_taken_names(conn: Conn, model: Model) -> None:
    """The sentence for the common case; two writers at the very same moment are refused by the database."""
    owner = fetch_one(conn, _SQL["name_owner"], _Owner, {"names": list(model.names), "model": model.name})
    if owner:
        what = "a model" if owner.name == owner.model else f"an alias of {owner.model!r}"
        raise Conflict(f"{owner.name!r} is {what} already: choose another name or alias for {model.name!r}")


def _generation_conflict(name: str, expected: int, have: int) -> str:
    if expected == 0:
        return f"there is a model {name!r} already: change it, or choose another name"
    if have == 0:
        return f"model {name!r} was removed in the meantime"
    return f"model {name!r} was changed in the meantime (generation {have}, not {expected}): look again, then repeat"


def _record(conn: Conn, actor: str, action: str, name: str, before: CatalogEntry | None, after: Model | None) -> None:
    audit.record(conn, actor=actor, action=action, target=name, before=before.spec if before else None, after=after)
    notify(conn, TOPIC, name)


def _found(row: _Row | None, name: str) -> CatalogEntry:
    if row is None:
        raise NotFound(f"there is no model {name!r}")
    return row.entry()


def _decode(text: str, kind: type[T]) -> T:
    """A stored document, less the fields that a newer version wrote and this one does not know."""
    return msgspec.json.decode(text, type=kind)
