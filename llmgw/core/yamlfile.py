"""YAML that people write, decoded into structs. Whatever is wrong is named with its file and line, and nothing grows.

Anchors, tags and duplicate keys are refused: a page of YAML then means what it looks like and cannot multiply itself.
A plain scalar in a place that takes text is that text (`listen: 8080` is the text `8080`, `version: 1.10` keeps its 0,
`name: no` is called `no`).
"""

import difflib
import re
from pathlib import Path
from typing import TypeVar

import msgspec
import msgspec.inspect
import yaml

from llmgw.core.errors import InvalidInput

MAX_FILE_BYTES = 1024 * 1024
MAX_DEPTH = 32
"""Deepest nesting of anything an operator writes is below 10."""

T = TypeVar("T")

_OTHER_THAN_TEXT = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp", "bool"))
"""What YAML takes plain scalars for that an operator may have meant as text."""


def read_yaml(path: Path, type_: type[T]) -> T:
    """The file at `path` as a `type_`; raises InvalidInput naming file and line, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", field=str(path)) from error
    return decode_yaml(data, type_, where=str(path))


def decode_yaml(data: bytes, type_: type[T], *, where: str) -> T:
    """`data` as a `type_`; raises InvalidInput whose field is ``where:line``."""
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"is larger than {MAX_FILE_BYTES} bytes", field=where)
    walk = _Walk(where)
    plain = walk.value(_compose(data, where), msgspec.inspect.type_info(type_), "$", 0)
    try:
        return msgspec.convert(plain, type_)
    except msgspec.ValidationError as error:
        raise walk.refusal(error) from error


def _compose(data: bytes, where: str) -> yaml.Node:
    try:
        node = yaml.compose(data.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"is not UTF-8 at byte {error.start}", field=where) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidInput(
            f"is not YAML: {error.problem or error.context}", field=f"{where}:{mark.line + 1}" if mark else where
        ) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"is not YAML: {str(error).splitlines()[0]}", field=where) from error
    except RecursionError as error:
        raise InvalidInput("is nested too deeply", field=where) from error
    if node is None:
        raise InvalidInput("is empty", field=where)
    return node


class _Walk:
    """Turns nodes into plain values, remembering the line of every path."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lines: dict[str, int] = {}
        self._choices: dict[str, str] = {}
        """What may stand at each path that takes some words only."""
        self._seen: set[int] = set()
        self._loader = yaml.SafeLoader("")

    def value(self, node: yaml.Node, info: msgspec.inspect.Type, path: str, depth: int) -> object:
        self._lines[path] = node.start_mark.line + 1
        if choices := _choices(info):
            self._choices[path] = ", ".join(choices)
        if depth > MAX_DEPTH:
            raise self._refused(node, "is nested too deeply")
        if id(node) in self._seen:
            raise self._refused(node, "anchors and aliases are not used here; write the value out")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, info, path, depth)
        if isinstance(node, yaml.SequenceNode):
            inner = _item_info(info)
            return [self.value(item, inner, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)]
        return self._scalar(node, info)

    def _mapping(self, node: yaml.MappingNode, info: msgspec.inspect.Type, path: str, depth: int) -> dict[str, object]:
        fields = _fields(info)
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refused(key_node, "a key is plain text")
            key = str(key_node.value)
            if key in result:
                raise self._refused(key_node, f"{key[:80]!r} is given twice")
            if fields is not None and key not in fields:
                raise self._refused(key_node, f"unknown key {key[:80]!r}{_suggestion(key, fields)}")
            inner = fields[key] if fields is not None else _item_info(info)
            result[key] = self.value(
                value_node, inner, f"{path}.{key}" if fields is not None else f"{path}[...]", depth + 1
            )
        return result

    def _scalar(self, node: yaml.Node, info: msgspec.inspect.Type) -> object:
        if node.tag in _OTHER_THAN_TEXT and _takes_text_only(info):
            return str(node.value)
        if not node.tag.startswith("tag:yaml.org,2002:"):
            raise self._refused(node, f"the tag {node.tag[:80]!r} is not used here")
        try:
            value: object = self._loader.construct_object(node)
            return value
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise self._refused(node, f"{str(node.value)[:80]!r} cannot be read") from error

    def refusal(self, error: msgspec.ValidationError) -> InvalidInput:
        """The decoder's own message with the line its path points at."""
        text, _, path = str(error).partition(" - at `")
        path = path.rstrip("`")
        while path and path not in self._lines:
            path = re.sub(r"(\.[^.\[\]]*|\[[^\]]*\])$", "", path) if path != "$" else ""
        line = self._lines.get(path, self._lines["$"])
        if text.startswith("Invalid enum value") and path in self._choices:
            text = f"{text}; known are {self._choices[path]}"
        name = path.removeprefix("$").lstrip(".")
        return InvalidInput(f"{name}: {text}" if name else text, field=f"{self._where}:{line}")

    def _refused(self, node: yaml.Node, why: str) -> InvalidInput:
        return InvalidInput(why, field=f"{self._where}:{node.start_mark.line + 1}")


def _suggestion(key: str, fields: dict[str, msgspec.inspect.Type]) -> str:
    close = difflib.get_close_matches(key, fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(sorted(fields))}"


def _options(info: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, ...]:
    if isinstance(info, msgspec.inspect.Metadata):
        return _options(info.type)
    return info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)


def _fields(info: msgspec.inspect.Type) -> dict[str, msgspec.inspect.Type] | None:
    for option in _options(info):
        if isinstance(option, msgspec.inspect.StructType):
            return {field.encode_name: field.type for field in option.fields}
    return None


def _choices(info: msgspec.inspect.Type) -> tuple[str, ...]:
    return tuple(
        str(value)
        for option in _options(info)
        if isinstance(option, msgspec.inspect.LiteralType)
        for value in option.values
    )


def _item_info(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    for option in _options(info):
        if isinstance(option, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            return option.item_type
        if isinstance(option, msgspec.inspect.DictType):
            return option.value_type
    return msgspec.inspect.AnyType()


def _takes_text_only(info: msgspec.inspect.Type) -> bool:
    kinds = [option for option in _options(info) if not isinstance(option, msgspec.inspect.NoneType)]
    return bool(kinds) and all(isinstance(kind, msgspec.inspect.StrType) for kind in kinds)
