"""What a newer version stored or sends is read, less what is not known here; what a person writes is not so lucky."""

from typing import Any

import msgspec
import pytest

from llmgw.api.types import KeyInfo, ModelAdd, ModelInfo, ScopeInfo
from llmgw.api.watch import KeyRow, ModelRow
from llmgw.core.catalog import Model, Profile, Scaling, model_from
from llmgw.core.errors import InvalidInput
from llmgw.core.external import External
from llmgw.core.limits import Budget, Limits, Period, ScopeKind, ScopeRecord
from llmgw.core.prices import Prices
from llmgw.core.routing import KeyRecord, RoutedModel, Routing
from llmgw.core.strict import unknown_field
from llmgw.store import catalog

MODEL = Model(
    name="m",
    source="sim:",
    scaling=Scaling(min=0, max=2),
    profiles=(Profile(name="p", engine="sim", env={"A": "b"}),),
    prices=Prices(input=1.0),
    fallbacks=("other",),
)
OUTSIDE = Model(
    name="o", external=(External(base_url="https://a.example/v1"), External(base_url="https://b.example/v1"))
)
LIMITS = Limits(rpm=3)
BUDGETS = (Budget(amount_micros=5, period=Period.DAY),)
RECORDS: list[msgspec.Struct] = [
    MODEL,
    OUTSIDE,
    KeyRecord(id="k", name="k", limits=LIMITS, budgets=BUDGETS),
    ScopeRecord(kind=ScopeKind.TEAM, id="t", limits=LIMITS, budgets=BUDGETS),
    Routing(revision="1/1", models=(RoutedModel(name="m", prices=Prices(output=2.0)),)),
    KeyRow(id="k", name="k", created=1.0, limits=LIMITS, budgets=BUDGETS),
    ModelRow(name="m", state="ready", ready=1, wanted=1, source="sim:", spec=MODEL),
]


def newer(value: Any) -> Any:
    """The same as a version would write it that has one more field everywhere."""
    if isinstance(value, dict):
        grown = {key: newer(item) for key, item in value.items()}
        return grown if set(value) == {"A"} else grown | {"a_later_field": {"deep": [1]}}
    if isinstance(value, list | tuple):
        return [newer(item) for item in value]
    return value


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{type(record).__name__} {getattr(record, 'name', '')}")
def test_a_newer_record_is_read_as_json_and_as_msgpack(record: msgspec.Struct) -> None:
    grown = newer(msgspec.to_builtins(record))
    kind = type(record)
    assert msgspec.json.decode(msgspec.json.encode(grown), type=kind) == record
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(grown), type=kind) == record


def test_a_stored_model_is_read_back_without_what_is_not_known() -> None:
    for model in (MODEL, OUTSIDE):
        text = msgspec.json.encode(newer(msgspec.to_builtins(model))).decode()
        assert catalog._decode(text, Model) == model


@pytest.mark.parametrize("kind", [ModelInfo, KeyInfo, ScopeInfo])
def test_no_answer_of_the_api_refuses_what_a_newer_server_adds(kind: type[msgspec.Struct]) -> None:
    """Types that forbid unknown fields are bodies of requests and nothing that is read back."""

    def strict(info: msgspec.inspect.Type) -> list[str]:
        if isinstance(info, msgspec.inspect.StructType):
            own = [info.cls.__name__] if info.cls.__struct_config__.forbid_unknown_fields else []
            return own + [name for field in info.fields for name in strict(field.type)]
        if isinstance(info, msgspec.inspect.UnionType):
            return [name for option in info.types for name in strict(option)]
        if isinstance(info, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            return strict(info.item_type)
        return strict(info.value_type) if isinstance(info, msgspec.inspect.DictType) else []

    assert strict(msgspec.inspect.type_info(kind)) == []


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"name": "m", "source": "sim:", "profils": []}, ("profils", "$")),
        ({"name": "m", "source": "sim:", "scaling": {"mn": 1}}, ("mn", "$.scaling")),
        ({"name": "m", "source": "sim:", "prices": {"outptu": 1}}, ("outptu", "$.prices")),
        ({"name": "m", "external": {"base_url": "https://a.example/v1", "keys": "x"}}, ("keys", "$.external")),
        ({"name": "m", "external": [{"base_url": "https://a.example/v1", "k": 1}]}, ("k", "$.external[0]")),
        (
            {"name": "m", "source": "sim:", "profiles": [{"name": "p", "engine": "sim", "slot": 1}]},
            ("slot", "$.profiles[0]"),
        ),
    ],
)
def test_what_a_person_wrote_is_refused_by_its_name_and_place(document: dict[str, Any], where: tuple[str, str]) -> None:
    assert unknown_field(document, Model) == where
    name, place = where
    with pytest.raises(InvalidInput, match=f"unknown field `{name}`"):
        model_from(document)
    assert unknown_field({"model": document}, ModelAdd) == (name, place.replace("$", "$.model", 1))


def test_names_that_operators_make_up_are_no_fields() -> None:
    document = {"name": "m", "source": "sim:", "profiles": [{"name": "p", "engine": "sim", "env": {"ANY": "thing"}}]}
    assert unknown_field(document, Model) is None
