"""Fields that a type does not know, found in what somebody just wrote.

The types themselves take such fields and drop them, because what a newer version stored or sends has to be read. Only
what comes from a person is held to the letter: a field that is spelled wrong must not pass for one that was left out.
"""

import functools

import msgspec
import msgspec.inspect as inspect

Path = tuple[str | int, ...]


def unknown_field(raw: object, type_: type[msgspec.Struct]) -> tuple[str, str] | None:
    """The first field in `raw`, plain values as JSON has them, that `type_` has no place for, and where: `$.limits`."""
    found = _unknown(raw, _info(type_), ())
    if found is None:
        return None
    *above, name = found
    return str(name), "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in above)


@functools.lru_cache(maxsize=128)
def _info(type_: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(type_)


def _unknown(raw: object, info: inspect.Type, path: Path) -> Path | None:
    if isinstance(raw, dict):
        return _in_object(raw, info, path)
    if isinstance(raw, list):
        for i, item in enumerate(raw):
            if (kind := _item(info, i)) is not None and (found := _unknown(item, kind, (*path, i))) is not None:
                return found
    return None


def _in_object(raw: dict[str, object], info: inspect.Type, path: Path) -> Path | None:
    for option in _options(info):
        if isinstance(option, inspect.StructType):
            fields = {field.encode_name: field.type for field in option.fields}
            for name, value in raw.items():
                if name not in fields:
                    return (*path, name)
                if (found := _unknown(value, fields[name], (*path, name))) is not None:
                    return found
            return None
        if isinstance(option, inspect.DictType):
            for name, value in raw.items():
                if (found := _unknown(value, option.value_type, (*path, name))) is not None:
                    return found
            return None
    return None


def _item(info: inspect.Type, number: int) -> inspect.Type | None:
    for option in _options(info):
        if isinstance(option, inspect.ListType | inspect.VarTupleType):
            return option.item_type
        if isinstance(option, inspect.TupleType) and number < len(option.item_types):
            return option.item_types[number]
    return None


def _options(info: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(info, inspect.Metadata):
        return _options(info.type)
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def refuse_unknown(raw: object, type_: type[msgspec.Struct]) -> None:
    """Raise msgspec.ValidationError, in its own words, for a field that `type_` has no place for."""
    found = unknown_field(raw, type_)
    if found is not None:
        name, where = found
        at = "" if where == "$" else f" - at `{where}`"
        raise msgspec.ValidationError(f"Object contains unknown field `{name[:80]}`{at}")
